//! What is in a dump: superblocks, nodes and pages of keys, wherever they lie.

use std::collections::HashMap;
use std::fmt;

use tacita_dnefs_format::key_page::{self, Place};
use tacita_dnefs_format::node::Header;
use tacita_dnefs_format::{CipherChoice, Layout, NODE_ALIGN, Protection, Superblock};
use tacita_secret::{Key, NoMemory, Password};

/// Everything begins at multiples of so many bytes, but for nodes.
pub(crate) const SECTOR_LEN: usize = 512;

/// Why no superblock is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// None of the passwords opens any.
    WrongPassword,
    /// A password could not be tried.
    NoMemory(NoMemory),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongPassword => {
                f.write_str("none of the passwords opens the volume in the dumps")
            }
            Self::NoMemory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Closed {}

/// Volumes, and the newest generation of the superblocks of each.
pub(crate) type Volumes = HashMap<[u8; 16], u64>;

/// Master keys.
#[derive(Debug, Default)]
pub(crate) struct Masters {
    keys: Vec<Key>,
    superblocks: Vec<Superblock>,
}

impl Masters {
    /// Takes those of all superblocks in a dump that a password opens, or that need none. Returns the
    /// volumes that they name, and the newest generation of each.
    ///
    /// # Errors
    /// [`Closed::NoMemory`].
    pub(crate) fn find(&mut self, dump: &[u8], passwords: &[Password]) -> Result<Volumes, Closed> {
        let mut volumes = Volumes::new();
        for sector in dump.chunks(SECTOR_LEN) {
            let Ok(superblock) = Superblock::decode(sector) else { continue };
            let newest = volumes.entry(superblock.parameters.uuid).or_default();
            *newest = superblock.generation.max(*newest);
            if self.superblocks.contains(&superblock) {
                continue;
            }
            self.superblocks.push(superblock.clone());
            if let Some(master) = master_of(&superblock, passwords)?
                && !self.keys.iter().any(|key| key.expose() == master.expose())
            {
                self.keys.push(master);
            }
        }
        Ok(volumes)
    }

    /// Whether the volume is ephemeral: its keys were in memory only.
    pub(crate) fn is_ephemeral(&self) -> bool {
        let newest = self.superblocks.iter().max_by_key(|superblock| superblock.generation);
        newest.is_some_and(|superblock| superblock.protection == Protection::Memory)
    }

    pub(crate) fn check(&self) -> Result<(), Closed> {
        if self.is_ephemeral() {
            return Ok(());
        }
        if self.keys.is_empty() && !self.superblocks.is_empty() {
            return Err(Closed::WrongPassword);
        }
        Ok(())
    }

    /// The cipher of the volume.
    pub(crate) fn cipher(&self) -> Option<CipherChoice> {
        self.superblocks.first().map(|superblock| superblock.parameters.cipher)
    }

    fn page_len(&self) -> Option<usize> {
        self.superblocks.first().map(|superblock| superblock.parameters.page_len_bytes as usize)
    }

    fn layout(&self) -> Option<Layout> {
        Layout::new(&self.superblocks.first()?.parameters).ok()
    }
}

/// The key of a superblock that needs no password, or that one of them opens.
fn master_of(superblock: &Superblock, passwords: &[Password]) -> Result<Option<Key>, Closed> {
    for password in std::iter::once(None).chain(passwords.iter().map(Some)) {
        match superblock.clone().unlock(password) {
            Ok(unlocked) => return Ok(Some(unlocked.master)),
            Err(tacita_dnefs_format::Closed::WrongPassword) => {}
            Err(tacita_dnefs_format::Closed::NoMemory(error)) => {
                return Err(Closed::NoMemory(error));
            }
        }
    }
    Ok(None)
}

/// A node as it lies in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where, in bytes from the start of the dump.
    pub offset: usize,
    /// Its header.
    pub header: Header,
}

/// A page of keys, opened.
#[derive(Debug)]
pub(crate) struct KeyPage {
    pub(crate) place: Place,
    pub(crate) bytes: Vec<u8>,
}

/// A dump and what is in it.
#[derive(Debug)]
pub(crate) struct Dump<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) nodes: Vec<Node>,
    pub(crate) key_pages: Vec<KeyPage>,
    pub(crate) key_pages_sealed: u64,
    pub(crate) layout: Option<Layout>,
}

impl<'a> Dump<'a> {
    /// Pages of keys begin at multiples of `alignment`.
    pub(crate) fn read(bytes: &'a [u8], masters: &Masters, alignment: usize) -> Self {
        let nodes = nodes(bytes).collect();
        let mut dump = Dump {
            bytes,
            nodes,
            key_pages: Vec::new(),
            key_pages_sealed: 0,
            layout: masters.layout(),
        };
        let Some(page_len) = masters.page_len() else { return dump };
        for start in (0..bytes.len()).step_by(alignment) {
            let Some(page) = bytes.get(start..start + page_len) else { break };
            if key_page::peek(page).is_err() {
                continue;
            }
            let opened = masters.keys.iter().find_map(|master| {
                let mut bytes = page.to_vec();
                let place = key_page::open(master, &mut bytes).ok()?;
                Some(KeyPage { place, bytes })
            });
            match opened {
                Some(page) => dump.key_pages.push(page),
                None => dump.key_pages_sealed += 1,
            }
        }
        dump
    }
}

/// Whole nodes with records, wherever they lie.
pub(crate) fn nodes(dump: &[u8]) -> impl Iterator<Item = Node> + '_ {
    (0..dump.len()).step_by(NODE_ALIGN as usize).filter_map(|offset| {
        let bytes = &dump[offset..];
        let header = Header::parse(bytes).ok().flatten()?;
        (header.class.is_sealed() && header.is_whole(bytes)).then_some(Node { offset, header })
    })
}
