//! `tacita check` and `tacita info`: whatever Tacita made is known by how it begins. What is hidden is
//! never looked for.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use tacita_daemon::Kind;
use tacita_daemon::control::Client;

use crate::arguments::{Dnefs, Hifs, Pddm};
use crate::exit::{self, Failure, Outcome};
use crate::output::shown_name;
use crate::{dnefs, hifs, output, passwords, pddm, status};

/// What a file, device or folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Hifs,
    Pddm,
    Dnefs,
    /// Something that no command checks by itself: what it is, and what reads it.
    Other(&'static str, &'static str),
}

impl Made {
    /// What `tacita dnefs dump` puts out.
    pub(crate) const DUMP: Self = Self::Other("raw dump of flash", "tacita dnefs audit");
    /// What `tacita oram trace` puts out.
    pub(crate) const TRACE: Self =
        Self::Other("trace of an oblivious store", "tacita oram trace --from FILE");

    /// What it is, for a sentence.
    pub(crate) fn article(self) -> String {
        let what = match self {
            Self::Hifs => "image of HIFS",
            Self::Pddm => "device of PD-DM",
            Self::Dnefs => "volume of DNEFS",
            Self::Other(what, _) => what,
        };
        let article = if what.starts_with(['a', 'i']) { "an" } else { "a" };
        format!("{article} {what}")
    }
}

/// How things begin.
const BEGINNINGS: [(&[u8], Made); 9] = [
    (b"TACITAHI", Made::Hifs),
    (b"TACITAPD", Made::Pddm),
    (b"TACITAFL", Made::Dnefs),
    (b"UBI#", Made::DUMP),
    (
        b"TACITANC",
        Made::Other("anchor of an oblivious store", "tacita oram check ADDRESS --key FILE"),
    ),
    (b"TACITAGR", SHARED_ANCHOR),
    (b"TACITORM", Made::Other("root of an oblivious store", "tacita oram serve FOLDER")),
    (
        b"tacita-oram-key",
        Made::Other("key of an oblivious store", "tacita oram check ADDRESS --key FILE"),
    ),
    (b"tacita oram trace", Made::TRACE),
];

const STORE: Made = Made::Other("folder of an oblivious store", "tacita oram serve FOLDER");
const SHARED_ANCHOR: Made = Made::Other(
    "anchor that clients of an oblivious store share",
    "tacita oram check ADDRESS --key FILE --shared-anchor FOLDER",
);
const SPOOL: Made =
    Made::Other("spool of purge, with what is still to be purged", "tacita purge mount LOWER DIR");

/// Files by which folders are known, and how they begin. What waits to be purged is known by the folder that
/// it lies in, too.
const FOLDERS: [(&str, &[u8], Made); 4] = [
    ("root", b"TACITORM", STORE),
    ("root", b"TACITAGR", SHARED_ANCHOR),
    ("records", b"TCTPURGE", SPOOL),
    (".tacita-purge/records", b"TCTPURGE", SPOOL),
];

/// As many bytes as the longest beginning has.
const LOOKED_AT: u64 = 32;

pub(crate) fn check(file: PathBuf, from: passwords::From, json: bool) -> Outcome<()> {
    status::looked_at(&file)?;
    match recognised(&file)? {
        Made::Hifs => hifs::run(&Hifs::Check { image: file, json }),
        Made::Dnefs => dnefs::run(&Dnefs::Check { volume: file, from, json }),
        Made::Pddm => pddm::run(&Pddm::Check {
            device: file,
            password: from,
            repair: false,
            public_only: false,
            json,
        }),
        Made::Other(what, by) => Err(Failure::usage(format!("{}: {what}", shown_name(&file)))
            .with_remedy(format!("it is read by `{by}`"))),
    }
}

pub(crate) fn info(file: PathBuf, json: bool) -> Outcome<()> {
    status::looked_at(&file)?;
    if status::is_folder(&file) {
        match Client::find(&file) {
            Ok(_) => return status::run(&file, None, json),
            Err(e) if e.kind() == Kind::NotServed => {}
            Err(e) => return Err(e.into()),
        }
    }
    match recognised(&file)? {
        Made::Hifs => hifs::run(&Hifs::Info { image: file, json }),
        Made::Dnefs => dnefs::run(&Dnefs::Info { volume: file, json }),
        Made::Pddm => pddm::info(&file, json),
        Made::Other(what, by) => {
            let facts = json!({ "what": what, "read_by": by });
            output::facts(json, &facts, &output::lines(&facts))
        }
    }
}

/// What a file is, if Tacita made it.
pub(crate) fn made_at(path: &Path) -> Option<Made> {
    recognised(path).ok()
}

fn recognised(path: &Path) -> Outcome<Made> {
    if dnefs::is_device(path) {
        return Ok(Made::Dnefs);
    }
    if path.is_dir() {
        for (name, beginning, made) in FOLDERS {
            let file = path.join(name);
            // Nobody may ever write to a pipe.
            let is_file = file.metadata().map(|there| there.is_file());
            match is_file.and_then(|is| if is { begins(&file) } else { Ok(Vec::new()) }) {
                Ok(bytes) if bytes.starts_with(beginning) => return Ok(made),
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    return Err(output::of_file(path, e));
                }
                _ => {}
            }
        }
        return Err(unknown(path));
    }
    // Nobody may ever write to a pipe, and opening some devices does something.
    if path.metadata().is_ok_and(|there| !there.is_file() && !there.file_type().is_block_device()) {
        return Err(unknown(path));
    }
    let begun = begins(path);
    let bytes = begun.as_deref().unwrap_or_default();
    let known = BEGINNINGS.iter().find(|(beginning, _)| bytes.starts_with(beginning));
    if let Some((_, made)) = known {
        return Ok(*made);
    }
    // Its first block may be damaged, or not be read: there are copies elsewhere.
    if hifs::has_superblock(path) {
        return Ok(Made::Hifs);
    }
    if pddm::has_superblock(path) {
        return Ok(Made::Pddm);
    }
    Err(begun.map_or_else(|e| output::of_file(path, e), |_| unknown(path)))
}

fn begins(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    tacita_block::keep_access_time(&file);
    file.take(LOOKED_AT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unknown(path: &Path) -> Failure {
    let text = format!("{}: this is nothing that Tacita makes", shown_name(path));
    Failure::new(exit::DEVICE, text).with_remedy(
        "images, devices, volumes, stores, keys, anchors, traces, dumps and spools are recognised; \
         what is mounted or served answers `tacita status`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_tell_things_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("thing");
        for (beginning, made) in BEGINNINGS {
            std::fs::write(&path, [beginning, &[0; 9000]].concat()).unwrap();
            assert_eq!(recognised(&path).unwrap(), made);
        }
        assert!(BEGINNINGS.iter().all(|(beginning, _)| beginning.len() as u64 <= LOOKED_AT));
        for bytes in [&b""[..], b"TACITA", b"tacita", &[0; 5000]] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(recognised(&path).unwrap_err().code, exit::DEVICE);
        }
        assert_eq!(recognised(folder.path()).unwrap_err().code, exit::DEVICE);
        for (name, beginning, made) in FOLDERS {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, [beginning, b" and more"].concat()).unwrap();
            assert_eq!(recognised(folder.path()).unwrap(), made);
            std::fs::remove_file(&file).unwrap();
        }
        assert_eq!(recognised(&folder.path().join("none")).unwrap_err().code, exit::DEVICE);
        let pipe = folder.path().join("pipe");
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, 0o600.into(), 0).unwrap();
        assert_eq!(recognised(&pipe).unwrap_err().code, exit::DEVICE);
    }
}
