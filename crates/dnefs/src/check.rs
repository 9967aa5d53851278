//! Is everything there, and as it was written? Nothing on the volume is changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tacita_dnefs_format::Superblock;
use tacita_dnefs_format::record::{Dentry, IndexKey, Inode, Kind as RecordKind, Part};
use tacita_flash::{Leb, Volume};
use tacita_secret::Password;

use crate::error::{Error, Kind, Result, damaged};
use crate::format::{places_without, unlock};
use crate::load;
use crate::store::{ROOT_INO, Store};

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Nodes that were opened.
    pub nodes: u64,
    /// Files, folders and others.
    pub inodes: u64,
    /// Whether it was unmounted.
    pub was_unmounted: bool,
    /// What is wrong, in words.
    pub wrong: Vec<String>,
    /// How many of these a mount for writing puts right.
    pub mended_by_mount: usize,
}

/// Opens every node of a volume, and compares names with what they name.
///
/// # Errors
/// [`Kind::NotAVolume`]; [`Kind::WrongPassword`]; [`Kind::Damaged`] if there is no whole checkpoint;
/// [`Kind::Device`].
pub fn check(
    volume: &Arc<dyn Volume>,
    password: Option<&Password>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Findings> {
    let unlocked = unlock(&**volume, password)?;
    let superblock = unlocked.superblock.clone();
    let parameters = superblock.parameters;
    let loaded = load::load(volume, unlocked)?;
    let mut findings = Findings { was_unmounted: loaded.is_clean, ..Findings::default() };
    for (leb, found) in places_without(&**volume, &superblock)? {
        findings.mended_by_mount += 1;
        findings.wrong.push(not_the_newest(leb, &found));
    }
    if let Some(unread) = &loaded.unread {
        findings.wrong.push(format!("what is newer than the checkpoint may be missing: {unread}"));
    }
    if loaded.lost > 0 {
        findings.wrong.push(lost(loaded.lost));
    }
    if !loaded.core.key_state_map_is_sound() {
        findings.wrong.push("keys are not used as the index says".into());
    }
    let all: Vec<_> = loaded.core.index.entries().map(|(at, _)| at).collect();
    let store = Store::new(Arc::clone(volume), parameters, loaded.core)?;
    let mut names = Names::default();
    let of = all.len() as u64;
    for at in all {
        findings.nodes += 1;
        progress(findings.nodes, of);
        if let Err(e) = names.look(&store, at) {
            findings.wrong.push(e.to_string());
        }
    }
    findings.wrong.extend(store.receipts(loaded.receipt).err().map(|e| e.to_string()));
    findings.inodes = names.inodes.len() as u64;
    names.compare(&mut findings.wrong);
    Ok(findings)
}

/// What is where the newest superblock should be.
fn not_the_newest(leb: Leb, found: &Result<Superblock>) -> String {
    let what = match found {
        Ok(_) => {
            "is not the newest one: a change of the password was cut short, and the one before may open it \
             still"
                .to_owned()
        }
        Err(e) if e.device().is_some() => format!("cannot be read: {}", e.cause()),
        Err(_) => "is damaged".to_owned(),
    };
    format!("the superblock in block {} {what}; mounting it for writing puts that right", leb.0)
}

/// That so many nodes are lost.
fn lost(nodes: u64) -> String {
    format!(
        "{nodes} nodes written after the newest checkpoint are lost: they are damaged, or behind damaged ones, or \
         their keys are in damaged pages"
    )
}

/// Inodes, and who names them.
#[derive(Default)]
struct Names {
    inodes: BTreeMap<u64, Inode>,
    /// Names of an inode, and how many of them are of folders by what they say.
    named: HashMap<u64, Vec<(u64, u32)>>,
    /// Folders in a folder.
    folders: HashMap<u64, u32>,
}

/// The type bits of a folder's mode.
const FOLDER: u32 = 0o040_000;
const TYPE_MASK: u32 = 0o170_000;

impl Names {
    fn look(&mut self, store: &Store, at: IndexKey) -> Result<()> {
        let what = || damaged(format!("the record of inode {}", at.ino));
        let end = IndexKey { sub: at.sub + 1, ..at };
        let most = store.layout.leb_len_bytes as usize;
        let mut found = None;
        store.read(at..end, |_, opened| {
            found = Some((opened.kind, opened.payload(most)?));
            Ok(())
        })?;
        let Some((kind, payload)) = found else { return Ok(()) };
        match (at.part(), kind) {
            (Some(Part::Inode), RecordKind::Inode) => {
                self.inodes.insert(at.ino, Inode::decode(&payload).map_err(what())?);
            }
            (Some(Part::Dentry(_)), RecordKind::Dentry) => {
                let dentry = Dentry::decode(&payload).map_err(what())?;
                self.named.entry(dentry.ino).or_default().push((at.ino, dentry.file_type));
                *self.folders.entry(at.ino).or_default() += u32::from(dentry.file_type == FOLDER);
            }
            (Some(Part::Data(_)), RecordKind::Data)
            | (Some(Part::Xattr(_)), RecordKind::Xattr)
            | (Some(Part::Receipt(_)), RecordKind::Receipt) => {}
            _ => {
                let text =
                    format!("a node of inode {} is something else than it should be", at.ino);
                return Err(Error::new(Kind::Damaged, text));
            }
        }
        Ok(())
    }

    fn compare(&self, wrong: &mut Vec<String>) {
        for (ino, inode) in &self.inodes {
            let none = Vec::new();
            let names = self.named.get(ino).unwrap_or(&none);
            let is_folder = inode.mode & TYPE_MASK == FOLDER;
            let expected = match (is_folder, *ino == ROOT_INO) {
                (true, false) => 1,
                (true, true) => 0,
                _ => inode.nlink as usize,
            };
            if names.len() != expected {
                wrong.push(format!("inode {ino} has {} names, not {expected}", names.len()));
            }
            let folders = self.folders.get(ino).copied().unwrap_or(0);
            if is_folder && inode.nlink != 2 + folders {
                wrong.push(format!(
                    "folder {ino} counts {} links, not {}",
                    inode.nlink,
                    2 + folders
                ));
            }
            if names.iter().any(|(_, file_type)| *file_type != inode.mode & TYPE_MASK) {
                wrong.push(format!("inode {ino} is not of the type that its name says"));
            }
        }
        let missing = self.named.keys().filter(|ino| !self.inodes.contains_key(ino));
        wrong.extend(missing.map(|ino| format!("inode {ino} is named but not there")));
    }
}
