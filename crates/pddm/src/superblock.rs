//! The superblock: what was chosen at init, and the public master key under the public password.
//! Nothing in it depends on hidden volumes. Bytes: docs/spec/pddm.md, section 2.

use tacita_secret::{Key, Opening, SALT_LEN, Sealing, TAG_LEN, Tag, digest};

use crate::geometry::{BLOCK_LEN, Geometry, Parameters};
use crate::keys::{Salt, superblock_key, superblock_wrap_key};

const MAGIC: [u8; 8] = *b"TACITAPD";
pub(crate) const VERSION: u32 = 2;

const SALT_AT: usize = 48;
const WRAP_SALT_AT: usize = SALT_AT + SALT_LEN;
const KEY_AT: usize = WRAP_SALT_AT + 32;
const TAG_AT: usize = KEY_AT + 32;
const WRAP_AT: usize = TAG_AT + TAG_LEN;
const WRAP_TAG_AT: usize = WRAP_AT + 32;
const HASH_AT: usize = BLOCK_LEN - 32;

/// What the superblock says without a password.
#[derive(Debug, Clone)]
pub(crate) struct Superblock {
    pub(crate) geometry: Geometry,
    /// Salt of all passwords.
    pub(crate) salt: [u8; SALT_LEN],
    wrap_salt: Salt,
    sealed_master: [u8; 32],
    tag: Tag,
    sealed_wrap: [u8; 32],
    wrap_tag: Tag,
}

impl Superblock {
    /// A superblock in which `wrap` opens `master`.
    pub(crate) fn new(
        geometry: Geometry,
        salt: [u8; SALT_LEN],
        wrap_salt: Salt,
        wrap: &Key,
        master: &Key,
    ) -> Self {
        let mut this = Self {
            geometry,
            salt,
            wrap_salt,
            sealed_master: *master.expose(),
            tag: [0; TAG_LEN],
            sealed_wrap: *wrap.expose(),
            wrap_tag: [0; TAG_LEN],
        };
        let context = this.context();
        let mut sealing = Sealing::new(&superblock_key(wrap, &wrap_salt));
        this.tag = sealing.seal(0, &context, &mut this.sealed_master);
        let mut sealing = Sealing::new(&superblock_wrap_key(master, &wrap_salt));
        this.wrap_tag = sealing.seal(0, &context, &mut this.sealed_wrap);
        this
    }

    /// The public master key, if `wrap` opens it.
    pub(crate) fn master(&self, wrap: &Key) -> Option<Key> {
        let mut master = self.sealed_master;
        let opening = Opening::new(&superblock_key(wrap, &self.wrap_salt));
        opening.open(0, &self.context(), &mut master, &self.tag).ok()?;
        Some(Key::take(&mut master))
    }

    /// The wrap key, for whoever has come to the public master from a hidden volume and writes the
    /// superblock anew.
    pub(crate) fn wrap(&self, master: &Key) -> Option<Key> {
        let mut wrap = self.sealed_wrap;
        let opening = Opening::new(&superblock_wrap_key(master, &self.wrap_salt));
        opening.open(0, &self.context(), &mut wrap, &self.wrap_tag).ok()?;
        Some(Key::take(&mut wrap))
    }

    /// All that is not secret: authenticated with the key.
    fn context(&self) -> [u8; KEY_AT] {
        let p = self.geometry.parameters();
        let mut bytes = [0; KEY_AT];
        bytes[..8].copy_from_slice(&MAGIC);
        let words = [VERSION, p.public_slots, p.hidden_slots, p.classes];
        for (place, word) in bytes[8..24].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[24..26].copy_from_slice(&p.public_spare.to_le_bytes());
        bytes[26..28].copy_from_slice(&p.hidden_spare.to_le_bytes());
        bytes[28..32].copy_from_slice(&p.heartbeat_ms.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.geometry.device_blocks().to_le_bytes());
        bytes[SALT_AT..WRAP_SALT_AT].copy_from_slice(&self.salt);
        bytes[WRAP_SALT_AT..KEY_AT].copy_from_slice(&self.wrap_salt);
        bytes
    }

    /// The block as it is on the device.
    pub(crate) fn encode(&self) -> Box<[u8; BLOCK_LEN]> {
        let mut block = Box::new([0; BLOCK_LEN]);
        block[..KEY_AT].copy_from_slice(&self.context());
        block[KEY_AT..TAG_AT].copy_from_slice(&self.sealed_master);
        block[TAG_AT..WRAP_AT].copy_from_slice(&self.tag);
        block[WRAP_AT..WRAP_TAG_AT].copy_from_slice(&self.sealed_wrap);
        block[WRAP_TAG_AT..WRAP_TAG_AT + TAG_LEN].copy_from_slice(&self.wrap_tag);
        let hash = digest(&block[..HASH_AT]);
        block[HASH_AT..].copy_from_slice(&hash);
        block
    }

    /// The version that a block names, if it is a superblock of any.
    pub(crate) fn version(block: &[u8; BLOCK_LEN]) -> Option<u32> {
        let number = block[8..12].try_into().expect("4 bytes");
        (block[..8] == MAGIC).then(|| u32::from_le_bytes(number))
    }

    /// Reads a block; `None` if it is no superblock of this version.
    pub(crate) fn decode(block: &[u8; BLOCK_LEN]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("4 bytes"));
        let u16_at = |at: usize| u16::from_le_bytes(block[at..at + 2].try_into().expect("2 bytes"));
        if Self::version(block) != Some(VERSION) || block[HASH_AT..] != digest(&block[..HASH_AT]) {
            return None;
        }
        let parameters = Parameters {
            public_slots: u32_at(12),
            hidden_slots: u32_at(16),
            classes: u32_at(20),
            public_spare: u16_at(24),
            hidden_spare: u16_at(26),
            heartbeat_ms: u32_at(28),
        };
        let blocks = u64::from_le_bytes(block[32..40].try_into().expect("8 bytes"));
        let this = Self {
            geometry: Geometry::new(parameters, blocks).ok()?,
            salt: block[SALT_AT..WRAP_SALT_AT].try_into().expect("a salt"),
            wrap_salt: block[WRAP_SALT_AT..KEY_AT].try_into().expect("a salt"),
            sealed_master: block[KEY_AT..TAG_AT].try_into().expect("a key"),
            tag: block[TAG_AT..WRAP_AT].try_into().expect("a tag"),
            sealed_wrap: block[WRAP_AT..WRAP_TAG_AT].try_into().expect("a key"),
            wrap_tag: block[WRAP_TAG_AT..WRAP_TAG_AT + TAG_LEN].try_into().expect("a tag"),
        };
        (this.encode()[..] == block[..]).then_some(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Superblock, Key) {
        let geometry = Geometry::new(Parameters::default(), 1 << 20).unwrap();
        let (wrap, master) = (Key::take(&mut [1; 32]), Key::take(&mut [2; 32]));
        (Superblock::new(geometry, [3; 32], [4; 32], &wrap, &master), wrap)
    }

    #[test]
    fn opens_with_its_password_only() {
        let (superblock, wrap) = example();
        let back = Superblock::decode(&superblock.encode()).unwrap();
        assert_eq!(back.master(&wrap).unwrap().expose(), &[2; 32]);
        assert!(back.master(&Key::take(&mut [2; 32])).is_none());
        assert_eq!(back.wrap(&Key::take(&mut [2; 32])).unwrap().expose(), wrap.expose());
        assert!(back.wrap(&wrap).is_none());
    }

    /// The worked example of docs/spec/pddm.md is what is written, to the byte.
    #[test]
    fn the_specification_shows_what_is_written() {
        const SPEC: &str = include_str!("../../../docs/spec/pddm.md");
        let (superblock, _) = example();
        let block = superblock.encode();
        let mut lines = 0;
        for line in SPEC.lines().filter(|line| line.starts_with("    0x")) {
            let mut words = line.split_whitespace();
            let at = words.next().and_then(|at| usize::from_str_radix(&at[2..], 16).ok()).unwrap();
            let bytes: Vec<u8> = words.map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
            assert_eq!(block[at..at + bytes.len()], bytes, "at {at:#x}");
            lines += 1;
        }
        assert!(lines >= 12, "{lines}");
    }

    #[test]
    fn any_changed_byte_is_refused() {
        let (superblock, _) = example();
        let good = superblock.encode();
        for at in 0..BLOCK_LEN {
            let mut block = good.clone();
            block[at] ^= 0x40;
            assert!(Superblock::decode(&block).is_none(), "byte {at}");
        }
    }
}
