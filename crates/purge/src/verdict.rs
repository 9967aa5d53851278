//! What can be said of a purged file: no more than was seen.
//!
//! The words are chosen with care: a pass over content that was read back is comparable to "clear"
//! of NIST SP 800-88 at the granularity of a file; it sanitizes no medium.

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::PathBuf;

use rustix::fs::{Statx, StatxAttributes};
use serde_json::{Value, json};
use tacita_daemon::control::path_to_json;
use tacita_daemon::voice::shown_name;

use crate::ext4::folder::Left;
use crate::ext4::journal::Erased;
use crate::faults::{Fault, planted};
use crate::lower_fs::{InPlace, Journal, LowerFs, Names};
use crate::xattrs::Overwritten;

/// Longest target of a symbolic link that ext4 keeps in the inode and clears with it.
pub(crate) const SHORT_TARGET_LEN_MAX: u64 = 59;

/// The same where it is encrypted, whatever it is padded to: 32 bytes and its length.
const SHORT_ENCRYPTED_LEN_MAX: u64 = 32;

/// How the last pass was read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// From the block device, at the places where the old content lay.
    Device,
    /// Through the file system, past the cache.
    DirectRead,
}

/// What became of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Overwritten at the same places, and read back.
    Verified(Proof),
    /// Overwritten at the same places; the method does not ask for reading back.
    InPlace,
    /// Nothing of it had reached the medium.
    NothingStored,
    /// Overwritten, but it cannot be shown that the old places were reached.
    Unproven(String),
    /// Another file has the same blocks: they live on with it.
    Shared(String),
    /// The old places were not reached.
    NotInPlace(String),
    /// Not overwritten.
    Kept(String),
}

/// What became of names, attributes or the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// There was nothing.
    None,
    /// Gone, as far as the file system has a way.
    Done,
    /// Will be, at the end of the present epoch.
    Pending,
    /// Traces may be left.
    Left(String),
}

/// What can be said of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Its path as it was given; the overlay keeps none.
    pub path: Option<PathBuf>,
    /// Its inode number; `None` of what was not found.
    pub inode: Option<u64>,
    /// Its size in bytes; `None` where nobody knows it any more.
    pub size: Option<u64>,
    /// The method.
    pub method: String,
    /// Its content.
    pub content: Content,
    /// Bytes written over it, all passes together.
    pub overwritten: u64,
    /// Bytes that were only in memory.
    pub in_memory: u64,
    /// Its extended attributes.
    pub attributes: Part,
    /// Its name.
    pub name: Part,
    /// The journal.
    pub journal: Part,
    /// Whether it is gone from the file system.
    pub removed: bool,
    /// What nobody here can exclude.
    pub risks: Vec<String>,
}

/// What helps where something beneath keeps old copies.
const AGAINST_COPIES: &str = "where that matters, encrypt, and destroy the keys";

/// What nobody sees afterwards of attributes that several files have had.
const SHARED_BEFORE: &str = "if another file had the same attributes, ext4 may have freed a block with a copy of their \
                             values; where that matters, mount it with nombcache";

impl Verdict {
    /// A verdict with nothing done yet.
    pub fn new(
        path: Option<PathBuf>,
        inode: impl Into<Option<u64>>,
        size: impl Into<Option<u64>>,
        method: String,
    ) -> Self {
        Self {
            path,
            inode: inode.into(),
            size: size.into(),
            method,
            content: Content::Kept("not begun".to_owned()),
            overwritten: 0,
            in_memory: 0,
            attributes: Part::None,
            name: Part::None,
            journal: Part::None,
            removed: false,
            risks: Vec::new(),
        }
    }

    /// Adds what cannot be excluded on this medium.
    pub fn add_risks(&mut self, lower: &LowerFs) {
        let keeper = lower.keeps_copies();
        self.risks.extend(keeper.map(|keeper| format!("{keeper}; {AGAINST_COPIES}")));
        if lower.shares_values && self.attributes != Part::None {
            self.risks.push(SHARED_BEFORE.to_owned());
        }
    }

    /// Whether everything is gone as far as was seen: not before the end of the epoch.
    pub fn holds(&self) -> bool {
        let content = matches!(
            self.content,
            Content::Verified(_) | Content::InPlace | Content::NothingStored
        );
        let parts = [&self.attributes, &self.name, &self.journal];
        let is_seen = |part: &&Part| matches!(part, Part::None | Part::Done);
        content && self.removed && parts.iter().all(is_seen)
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let mut text = match (&self.path, self.inode) {
            (Some(path), _) => format!("{}: ", shown_name(path)),
            (None, Some(inode)) => format!("inode {inode}: "),
            (None, None) => String::new(),
        };
        text += &self.content.text(&self.method);
        for (what, part) in
            [("name", &self.name), ("attributes", &self.attributes), ("journal", &self.journal)]
        {
            match part {
                Part::None | Part::Done => {}
                Part::Pending => {
                    let _ = write!(text, "; {what}: at the end of the epoch");
                }
                Part::Left(why) => {
                    let _ = write!(text, "; {what}: {why}");
                }
            }
        }
        for risk in &self.risks {
            let _ = write!(text, "; {risk}");
        }
        text
    }

    /// The same for programs; one line when printed compactly.
    pub fn json(&self) -> Value {
        let (content, why) = self.content.words();
        let proof = match self.content {
            Content::Verified(Proof::Device) => Some("device"),
            Content::Verified(Proof::DirectRead) => Some("direct read"),
            Content::InPlace => Some("extents"),
            _ => None,
        };
        json!({
            "path": self.path.as_deref().map(path_to_json),
            "inode": self.inode,
            "size": self.size,
            "method": self.method,
            "content": content,
            "proof": proof,
            "why": why,
            "overwritten": self.overwritten,
            "in_memory": self.in_memory,
            "name": self.name.words(),
            "attributes": self.attributes.words(),
            "journal": self.journal.words(),
            "removed": self.removed,
            "risks": self.risks,
            "holds": self.holds(),
        })
    }
}

impl Content {
    /// What becomes of the target of a symbolic link, which no call can overwrite.
    pub(crate) fn of_target(lower: &LowerFs, stat: &Statx) -> Self {
        let len = stat.stx_size;
        let is_encrypted = stat.stx_attributes.contains(StatxAttributes::ENCRYPTED);
        let is_padded = is_encrypted && len > SHORT_ENCRYPTED_LEN_MAX && stat.stx_blocks > 0;
        if lower.names == Names::Cleared && len <= SHORT_TARGET_LEN_MAX && !is_padded {
            return Self::NothingStored;
        }
        let why = "the target of a symbolic link cannot be overwritten; it stays until its block \
                   is used again";
        Self::NotInPlace(why.to_owned())
    }

    /// What became of the names in a folder that has gone with them; `None` where nobody can tell.
    pub(crate) fn of_folder(lower: &LowerFs, left: Option<&Left>) -> Self {
        let why = match left {
            Some(left) if left.is_nothing() => return Self::NothingStored,
            Some(left) if left.is_unseen() => {
                "the names in it were cleared, but may be left: it could not be checked"
            }
            Some(_) => {
                let why = "parts of the names in it are left, where nothing clears them";
                return Self::NotInPlace(why.to_owned());
            }
            None if !lower.is_ext() => {
                "the names in it were covered by others, but their places may have been missed"
            }
            None if !lower.puts_in_place() && lower.raw().is_some() => {
                "the names in it were cleared, but may be left: the journal cannot be put in place, so \
                 this was not verified"
            }
            None if lower.raw().is_some() => {
                "the names in it were cleared, but may be left: it is stored in a way that is not looked at here"
            }
            None => {
                "the names in it were cleared, but copies may be left: only root outside of a container can read the device"
            }
        };
        Self::Unproven(why.to_owned())
    }

    /// What became of content that was overwritten where that is refused; `None` where it is not.
    pub(crate) fn of_refused(lower: &LowerFs) -> Option<Self> {
        let why = lower.check().err()?.to_string();
        Some(match lower.in_place {
            InPlace::Unknown(_) => Self::Unproven(why),
            _ => Self::NotInPlace(why),
        })
    }

    /// A word, and the reason where there is one.
    pub fn words(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Verified(_) => ("verified in place", None),
            Self::InPlace => ("overwritten in place", None),
            Self::NothingStored => ("never stored", None),
            Self::Unproven(why) => ("overwritten, place not proven", Some(why)),
            Self::Shared(why) => ("shared", Some(why)),
            Self::NotInPlace(why) => ("not in place", Some(why)),
            Self::Kept(why) => ("kept", Some(why)),
        }
    }

    fn text(&self, method: &str) -> String {
        match self {
            Self::Verified(Proof::Device) => {
                format!("overwritten in place ({method}), read back from the device")
            }
            Self::Verified(Proof::DirectRead) => {
                format!("overwritten in place ({method}), read back past the cache")
            }
            Self::InPlace => format!("overwritten in place ({method}), not read back"),
            Self::NothingStored => "nothing of its content was stored".to_owned(),
            Self::Unproven(why) => format!("overwritten ({method}), place not proven: {why}"),
            Self::Shared(why) => format!("NOT overwritten where it is shared: {why}"),
            Self::NotInPlace(why) => format!("NOT overwritten in place: {why}"),
            Self::Kept(why) => format!("KEPT: {why}"),
        }
    }
}

impl Part {
    /// What can be said of the journal, by what was seen of it when it had been erased; before that,
    /// what will be if nothing is left in it.
    pub(crate) fn of_journal(lower: &LowerFs, erased: Option<Erased>) -> Self {
        let why = match lower.journal {
            Journal::None => return Self::None,
            Journal::Erasable => match erased {
                None | Some(Erased::Gone) => return Self::Done,
                Some(Erased::Unread) => {
                    "it was erased, but the device cannot be read here, so this was not verified"
                }
                Some(Erased::Unfound) => {
                    "it was erased, but it lies where this could not be verified"
                }
                Some(Erased::Left) => "it was erased, but some of its blocks are unchanged",
            },
            Journal::NotPermitted => {
                "old names and attributes may stay in it: only root outside of a container can erase it"
            }
            Journal::FastCommits if planted(Fault::FastCommitsUntold) => return Self::Done,
            Journal::FastCommits => {
                "it has an area for fast commits and was not erased: old names and attributes may \
                 stay there and in the rest of it"
            }
            Journal::Unseen => {
                "it was not erased, because it is not known whether it has an area for fast \
                 commits: old names and attributes may stay in it"
            }
            Journal::Stays => "old names and attributes stay in it until it wraps around",
            Journal::Unknown => "nothing is known about it",
        };
        Self::Left(why.to_owned())
    }

    /// What can be said of a name, by what is left in its folder; `None` where nobody can tell.
    pub(crate) fn of_name(lower: &LowerFs, name: &OsStr, left: Option<&Left>) -> Self {
        let why = match left {
            Some(left) if !left.has(name) => return Self::Done,
            Some(left) if left.is_unseen() => {
                "cleared, but it may be left in its folder, which could not be checked"
            }
            Some(_) => "a part of it is left in its folder, where nothing clears it",
            None if !lower.is_ext() => "covered by others, but its place may have been missed",
            None if !lower.puts_in_place() && lower.raw().is_some() => {
                "cleared, but it may be left in its folder: the journal cannot be put in place, so \
                 this was not verified"
            }
            None if lower.raw().is_some() => {
                "cleared, but it may be left in its folder, which is stored in a way that is not looked at here"
            }
            None => {
                "cleared, but copies may be left in its folder: only root outside of a container can read the device"
            }
        };
        Self::Left(why.to_owned())
    }

    /// What can be said of values once the journal has been dealt with.
    pub(crate) fn of_values(lower: &LowerFs, overwritten: &Overwritten) -> Self {
        let why = match overwritten {
            Overwritten::Nothing => return Self::None,
            Overwritten::Left(why) => why,
            Overwritten::Shared(_) => {
                "other files have, or had, the same values in the same block of attributes, where \
                 they still are"
            }
            Overwritten::Unseen if lower.is_ext() && lower.raw().is_none() => {
                "overwritten, but only root outside of a container can verify that it is gone"
            }
            Overwritten::Gone | Overwritten::Unseen => match Self::of_journal(lower, None) {
                Self::Left(_) => "overwritten, but old values may stay in the journal",
                _ => return Self::Done,
            },
        };
        Self::Left(why.to_owned())
    }

    fn words(&self) -> Value {
        match self {
            Self::None => json!("none"),
            Self::Done => json!("done"),
            Self::Pending => json!("pending"),
            Self::Left(why) => json!({ "left": why }),
        }
    }
}
