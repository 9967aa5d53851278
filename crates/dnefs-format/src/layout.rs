//! Where everything lies on a volume, and the names of places.

use crate::fields::Malformed;
use crate::key_page;
use crate::superblock::Parameters;

/// The erase blocks of the two superblocks.
pub const SUPERBLOCK_LEBS: [u32; 2] = [0, 1];
/// The erase blocks of the roots, one after the other.
pub const ROOT_LEBS: [u32; 2] = [2, 3];
/// First erase block of the key storage area.
const KEYS_START: u32 = 4;
/// Nodes begin at multiples of so many bytes.
pub const NODE_ALIGN: u32 = 8;
/// Fewest erase blocks for nodes: heads, garbage collection and somewhat to keep.
const MAIN_LEBS_MIN: u32 = 12;

/// Fewest erase blocks of keys: one is written anew beside the others.
const KEY_LEBS_MIN: u32 = 2;

/// Fewest erase blocks of a volume.
pub const LEBS_MIN: u32 = KEYS_START + KEY_LEBS_MIN + MAIN_LEBS_MIN;

/// Position of a key: it never changes, whichever physical block holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPos {
    /// Which erase block of the key storage area, from 0.
    pub leb: u32,
    /// Which key of it, from 0.
    pub slot: u32,
}

/// Number of an erase block of the main area, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MainLeb(pub u32);

/// Where everything lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Length of a logical erase block in bytes.
    pub leb_len_bytes: u32,
    /// Length of a page in bytes.
    pub page_len_bytes: u32,
    /// Erase blocks of keys.
    pub key_lebs: u32,
    /// Erase blocks of nodes.
    pub main_lebs: u32,
    /// Keys in a page.
    pub keys_per_page: u32,
    /// Keys in an erase block.
    pub keys_per_leb: u32,
}

impl Layout {
    /// The layout that follows from the parameters of a volume.
    ///
    /// # Errors
    /// [`Malformed`] if they make no volume.
    pub fn new(parameters: &Parameters) -> Result<Self, Malformed> {
        let (leb, page) = (parameters.leb_len_bytes, parameters.page_len_bytes);
        if !(512..=1 << 16).contains(&page) || !page.is_power_of_two() {
            return Err(Malformed("pages are a power of two from 512 to 65536 bytes"));
        }
        if leb > 1 << 24 || leb < 4 * page || !leb.is_multiple_of(page) {
            return Err(Malformed("erase blocks are 4 pages at least, 16 MiB at most"));
        }
        let keys_per_page = key_page::capacity(page, parameters.cipher.key_len());
        let keys_per_leb = keys_per_page * (leb / page);
        let rest = parameters
            .lebs
            .checked_sub(KEYS_START)
            .and_then(|n| n.checked_sub(parameters.key_lebs));
        let main_lebs =
            rest.filter(|&main| main >= MAIN_LEBS_MIN && parameters.key_lebs >= KEY_LEBS_MIN);
        let Some(main_lebs) = main_lebs else {
            return Err(Malformed("it has too few erase blocks"));
        };
        if u64::from(parameters.key_lebs) * u64::from(keys_per_leb) >= u64::from(u32::MAX) {
            return Err(Malformed("it has more keys than 2^32"));
        }
        let node = parameters.node_len_bytes;
        if node < 512 || !node.is_power_of_two() || node > leb / 2 {
            return Err(Malformed(
                "nodes are a power of two from 512 bytes to half an erase block",
            ));
        }
        Ok(Self {
            leb_len_bytes: leb,
            page_len_bytes: page,
            key_lebs: parameters.key_lebs,
            main_lebs,
            keys_per_page,
            keys_per_leb,
        })
    }

    /// Pages in an erase block.
    pub const fn pages_per_leb(&self) -> u32 {
        self.leb_len_bytes / self.page_len_bytes
    }

    /// The volume's number of an erase block of keys.
    pub const fn key_leb(&self, number: u32) -> u32 {
        KEYS_START + number
    }

    /// The volume's number of an erase block of nodes.
    pub const fn main_leb(&self, number: MainLeb) -> u32 {
        KEYS_START + self.key_lebs + number.0
    }

    /// How many keys there are.
    pub const fn keys(&self) -> u32 {
        self.key_lebs * self.keys_per_leb
    }

    /// Whether there is such a key.
    pub const fn has_key(&self, key: KeyPos) -> bool {
        key.leb < self.key_lebs && key.slot < self.keys_per_leb
    }
}
