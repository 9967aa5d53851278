//! What can be said of a purged file: no more than was seen.
//!
//! The words are chosen with care: a pass over content that was read back is comparable to "clear"
//! of NIST SP 800-88 at the granularity of a file; it sanitizes no medium.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::lower_fs::LowerFs;

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
    pub path: Option<String>,
    /// Its inode number.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
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
    pub risks: Vec<&'static str>,
}

/// Risk of media that write elsewhere.
const FLASH: &str = "flash: the device may keep old copies that cannot be addressed; where that \
                     matters, encrypt, and destroy the keys";

impl Verdict {
    /// A verdict with nothing done yet.
    pub fn new(path: Option<String>, inode: u64, size: u64, method: String) -> Self {
        Self {
            path,
            inode,
            size,
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
        if lower.flash {
            self.risks.push(FLASH);
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
        let mut text = match &self.path {
            Some(path) => format!("{path}: "),
            None => format!("inode {}: ", self.inode),
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
            "path": self.path,
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
    fn words(&self) -> Value {
        match self {
            Self::None => json!("none"),
            Self::Done => json!("done"),
            Self::Pending => json!("pending"),
            Self::Left(why) => json!({ "left": why }),
        }
    }
}
