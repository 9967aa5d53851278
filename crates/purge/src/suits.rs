//! Does overwriting reach the old blocks here? Asked of the place itself, with a file of ours.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fsync, openat, unlinkat};
use rustix::io::Errno;
use serde_json::{Value, json};
use tacita_daemon::voice::shown_name;

use crate::erasure::{Erasure, Fate};
use crate::error::During;
use crate::lower_fs::{Journal, LowerFs, Names};
use crate::method::{Method, Pattern};
use crate::verdict::Content;
use crate::{Error, Kind, Result, names};

/// Length of the probe: more than fits into an inode.
const PROBE_LEN_BYTES: u64 = 64 << 10;

/// What was found out about a place.
#[derive(Debug)]
pub struct Suitability {
    /// What lies beneath.
    pub lower: LowerFs,
    /// How purging the probe went.
    pub probe: Content,
}

impl Suitability {
    /// Finds out what lies beneath `path`, and purges a file there.
    ///
    /// # Errors
    /// [`crate::Kind::NotFound`]; [`crate::Kind::NotPermitted`]; [`crate::Kind::NoSpace`];
    /// [`crate::Kind::Io`].
    pub fn of(path: &Path) -> Result<Self> {
        let named = |e| {
            let e = Error::of_kernel(e, "");
            Error::new(e.kind(), format!("{}{e}", path.display()))
        };
        let open = |path: &Path| {
            openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        };
        let dir = match open(path) {
            Err(rustix::io::Errno::NOTDIR) => {
                open(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))
            }
            other => other,
        }
        .map_err(named)?;
        let lower = LowerFs::beneath(&dir)?;
        let probe = probe(&lower, &dir)?;
        Ok(Self { lower, probe })
    }

    /// Why overwriting does not reach the old blocks; `None` if it does.
    pub fn reason(&self) -> Option<String> {
        if let Err(e) = self.lower.check() {
            return Some(e.to_string());
        }
        match &self.probe {
            Content::Verified(_) | Content::InPlace => {}
            other => {
                let (word, why) = other.words();
                return Some(format!(
                    "a probe was {word}: {}",
                    why.unwrap_or("nothing was stored")
                ));
            }
        }
        let keeper = self.lower.keeps_copies()?;
        Some(format!("overwriting reaches the same logical blocks, but {keeper}"))
    }

    /// Facts and answer for programs.
    pub fn json(&self) -> Value {
        let (probe, why) = self.probe.words();
        json!({
            "suits": self.reason().is_none(),
            "reason": self.reason(),
            "file_system": self.lower.fs,
            "device": self.lower.device,
            "flash": self.lower.flash,
            "keeps_copies": self.lower.keeps_copies(),
            "virtual_disk": self.lower.on_virtual_disk,
            "journal": journal_word(self.lower.journal),
            "journals_data": self.lower.journals_data,
            "fast_commits": self.lower.fast_commits,
            "shares_attributes": self.lower.shares_values,
            "names": match self.lower.names {
                Names::Cleared => "cleared",
                Names::Covered => "covered",
            },
            "probe": probe,
            "probe_why": why,
        })
    }

    /// The same for people.
    pub fn text(&self) -> String {
        let device = self
            .lower
            .device
            .as_deref()
            .map_or_else(|| "no device of its own".to_owned(), shown_name);
        let names = match self.lower.names {
            Names::Cleared => "cleared by the file system",
            Names::Covered => "covered by others as far as possible",
        };
        let data = if self.lower.journals_data { ", content passes through it" } else { "" };
        let fast = match self.lower.fast_commits {
            Some(false) => "",
            Some(true) => ", with an area for fast commits",
            None => {
                ", perhaps with an area for fast commits: only root outside of a container can look"
            }
        };
        let attributes = if self.lower.shares_values {
            "attributes: files with the same ones have one block, and a copy may be freed as it is: nombcache \
             prevents it\n"
        } else {
            ""
        };
        let answer = match self.reason() {
            None if self.lower.on_virtual_disk => {
                "yes: overwriting reaches the old blocks of a virtual disk, of which its host may keep \
                 copies"
                    .to_owned()
            }
            None => "yes: overwriting reaches the old blocks".to_owned(),
            Some(reason) => format!("no: {reason}"),
        };
        format!(
            "file system: {} on {device}\njournal: {}{data}{fast}\nnames: {names}\n{attributes}probe: {}\n{answer}\n",
            self.lower.fs,
            journal_word(self.lower.journal),
            self.probe.words().0,
        )
    }
}

fn journal_word(journal: Journal) -> &'static str {
    match journal {
        Journal::None => "none",
        Journal::Erasable => "can be erased",
        Journal::NotPermitted => "can be erased by root outside of a container only",
        Journal::FastCommits => {
            "is not erased, because it has an area for fast commits: old names and attributes may stay"
        }
        Journal::Unseen => "is not erased, because it may have an area for fast commits",
        Journal::Stays => "cannot be erased: old names and attributes stay until it wraps around",
        Journal::Unknown => "unknown",
    }
}

fn probe(lower: &LowerFs, dir: &OwnedFd) -> Result<Content> {
    let file = match nameless(dir)? {
        // Of /proc, say: the folder is there, and takes no files.
        Err(Errno::NOENT | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
            let text = "nobody can make files there: it is no file system to keep them";
            return Err(Error::new(Kind::Unsuitable, text));
        }
        opened => File::from(opened.during("making a file to try it on")?),
    };
    overwrite_probe(lower, &file)
}

/// A file without a name, which is gone whatever becomes of this process. Where there is no such
/// thing it has a name for a moment.
fn nameless(dir: &OwnedFd) -> Result<rustix::io::Result<OwnedFd>> {
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    if let Ok(file) = openat(dir, ".", flags | OFlags::TMPFILE, mode) {
        return Ok(Ok(file));
    }
    let name = format!(".tacita-probe-{}", names::random_name(12)?);
    let opened = openat(dir, name.as_str(), flags | OFlags::CREATE | OFlags::EXCL, mode);
    if opened.is_ok() {
        unlinkat(dir.as_fd(), name.as_str(), AtFlags::empty()).during("removing the probe")?;
    }
    Ok(opened)
}

fn overwrite_probe(lower: &LowerFs, file: &File) -> Result<Content> {
    let method: Method = "custom:55,V".parse()?;
    debug_assert_eq!(method.passes(), [Pattern::Byte(0x55)]);
    let content: Vec<u8> =
        tacita_secret::random::<4096>().during("asking for random bytes")?.into();
    for at in (0..PROBE_LEN_BYTES).step_by(content.len()) {
        file.write_all_at(&content, at).during("writing the probe")?;
    }
    fsync(file).during("writing the probe back")?;
    let mut erasure = Erasure::prepare(lower, file, &Fate::Dies, &method)?;
    erasure.run(0, &mut |_| ())?;
    erasure.judge()
}
