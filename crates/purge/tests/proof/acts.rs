//! Every way in which a program loses content or a name: the rows of the matrix.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, removexattr, setxattr};
use rustix::io::Errno;

/// A way to lose something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Unlink,
    LastLink,
    OpenUnlinked,
    RenameOver,
    Rename,
    Empty,
    Truncate,
    Punch,
    Zero,
    Collapse,
    Insert,
    CopyRange,
    Sparse,
    Mapped,
    Tree,
    EmptyTree,
    Symlink,
    SetAttribute,
    RemoveAttribute,
    Attributes,
    LargeAttributes,
    SetLargeAttribute,
    RemoveLargeAttribute,
    Fifo,
    Prealloc,
}

pub(crate) const ALL: [Act; 25] = [
    Act::Unlink,
    Act::LastLink,
    Act::OpenUnlinked,
    Act::RenameOver,
    Act::Rename,
    Act::Empty,
    Act::Truncate,
    Act::Punch,
    Act::Zero,
    Act::Collapse,
    Act::Insert,
    Act::CopyRange,
    Act::Sparse,
    Act::Mapped,
    Act::Tree,
    Act::EmptyTree,
    Act::Symlink,
    Act::SetAttribute,
    Act::RemoveAttribute,
    Act::Attributes,
    Act::LargeAttributes,
    Act::SetLargeAttribute,
    Act::RemoveLargeAttribute,
    Act::Fifo,
    Act::Prealloc,
];

/// First part of a file that is truncated or punched: it stays.
const HEAD_LEN: u64 = 4096;
/// The part that goes.
const BODY_LEN: u64 = 16 << 10;

/// What is searched for.
pub(crate) struct Marks {
    /// In content that goes.
    pub(crate) lost: String,
    /// In content that stays.
    pub(crate) kept: String,
    /// In names that go.
    pub(crate) name: String,
}

impl Act {
    pub(crate) fn marks(self, tag: &str) -> Marks {
        Marks {
            lost: format!("LOST-{self:?}-{tag}-"),
            kept: format!("KEPT-{self:?}-{tag}-"),
            name: format!("secretname-{self:?}-{tag}-"),
        }
    }

    fn file(self, dir: &Path, tag: &str) -> PathBuf {
        dir.join(format!("{}file", self.marks(tag).name))
    }

    /// Whether the file, with its name, lives on.
    fn keeps_file(self) -> bool {
        use Act::*;
        matches!(
            self,
            Empty
                | Truncate
                | Punch
                | Zero
                | Collapse
                | Insert
                | SetAttribute
                | RemoveAttribute
                | SetLargeAttribute
                | RemoveLargeAttribute
        )
    }

    /// Whether content or values go.
    pub(crate) fn loses_content(self) -> bool {
        !matches!(self, Act::Rename | Act::Insert | Act::Fifo | Act::EmptyTree)
    }

    /// Whether names go.
    pub(crate) fn loses_name(self) -> bool {
        !self.keeps_file()
    }

    /// Whether something is to be there afterwards, unhurt.
    pub(crate) fn keeps_content(self) -> bool {
        use Act::*;
        matches!(self, Truncate | Punch | Zero | Collapse | Insert | Rename | CopyRange)
    }

    /// Makes what is to be lost.
    pub(crate) fn prepare(self, dir: &Path, tag: &str) {
        let marks = self.marks(tag);
        let path = self.file(dir, tag);
        match self {
            Act::Tree | Act::EmptyTree => {
                let content = if self == Act::Tree { marks.lost.as_str() } else { "" };
                fs::create_dir_all(path.join("below")).unwrap();
                for number in 0..40 {
                    let name = format!("{}{number:03}-of-many", marks.name);
                    fs::write(path.join("below").join(&name), content).unwrap();
                    fs::write(path.join(name), content).unwrap();
                }
            }
            Act::Symlink => std::os::unix::fs::symlink(&marks.lost, &path).unwrap(),
            Act::Fifo => {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
            }
            Act::SetAttribute | Act::RemoveAttribute | Act::Attributes => {
                fs::write(&path, b"x").unwrap();
                set(&path, "user.note", &marks.lost);
            }
            Act::LargeAttributes | Act::SetLargeAttribute | Act::RemoveLargeAttribute => {
                fs::write(&path, b"x").unwrap();
                set(&path, "user.note", &marks.lost.repeat(20));
                if self == Act::LargeAttributes {
                    set(&path, "user.other", &marks.lost.repeat(8));
                }
            }
            Act::Sparse => {
                let file = File::create(&path).unwrap();
                for at in [0, 1 << 20, 3 << 20] {
                    file.write_all_at(&fill(&marks.lost, BODY_LEN), at).unwrap();
                }
                file.set_len(8 << 20).unwrap();
            }
            Act::Insert | Act::Rename => fs::write(&path, fill(&marks.kept, BODY_LEN)).unwrap(),
            Act::Unlink | Act::LastLink | Act::OpenUnlinked | Act::RenameOver | Act::Empty => {
                fs::write(&path, fill(&marks.lost, BODY_LEN)).unwrap();
            }
            _ => {
                let mut content = fill(&marks.kept, HEAD_LEN);
                if !self.keeps_content() || self == Act::CopyRange {
                    content = fill(&marks.lost, HEAD_LEN);
                }
                content.extend(fill(&marks.lost, BODY_LEN));
                fs::write(&path, content).unwrap();
            }
        }
        if self == Act::LastLink {
            fs::hard_link(&path, dir.join(format!("{}second", marks.name))).unwrap();
        }
    }

    /// Loses it. False if this file system has no such operation.
    #[allow(clippy::too_many_lines, reason = "one arm for each way, as a table")]
    pub(crate) fn happen(self, dir: &Path, tag: &str) -> bool {
        let marks = self.marks(tag);
        let path = self.file(dir, tag);
        let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        match self {
            Act::Unlink
            | Act::Sparse
            | Act::Symlink
            | Act::Fifo
            | Act::Attributes
            | Act::LargeAttributes => fs::remove_file(&path).unwrap(),
            Act::LastLink => {
                fs::remove_file(&path).unwrap();
                let second = dir.join(format!("{}second", marks.name));
                assert_eq!(fs::read(&second).unwrap(), fill(&marks.lost, BODY_LEN), "hurt");
                fs::remove_file(second).unwrap();
            }
            Act::OpenUnlinked => {
                let mut file = open();
                fs::remove_file(&path).unwrap();
                let mut content = Vec::new();
                file.seek(SeekFrom::Start(0)).unwrap();
                file.read_to_end(&mut content).unwrap();
                assert_eq!(content, fill(&marks.lost, BODY_LEN), "it lives while it is open");
                file.write_all_at(marks.lost.as_bytes(), BODY_LEN).unwrap();
                file.sync_all().unwrap();
            }
            Act::RenameOver => {
                let other = dir.join(format!("{}new", marks.name));
                fs::write(&other, b"new").unwrap();
                File::open(&other).unwrap().sync_all().unwrap();
                fs::rename(&other, &path).unwrap();
                assert_eq!(fs::read(&path).unwrap(), b"new");
                let calm = dir.join(format!("calm-{self:?}-{tag}"));
                fs::rename(&path, &calm).unwrap();
            }
            Act::Rename => fs::rename(&path, dir.join(format!("calm-{self:?}-{tag}"))).unwrap(),
            Act::Empty => drop(File::create(&path).unwrap()),
            Act::Truncate => open().set_len(HEAD_LEN).unwrap(),
            Act::Punch => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                return works(fallocate(open(), flags, HEAD_LEN, BODY_LEN));
            }
            Act::Zero => {
                return works(fallocate(open(), FallocateFlags::ZERO_RANGE, HEAD_LEN, BODY_LEN));
            }
            Act::Collapse => {
                // The end cannot be collapsed: a block more goes behind it, to be moved down.
                let file = open();
                file.write_all_at(&fill(&marks.kept, 4096), HEAD_LEN + BODY_LEN).unwrap();
                file.sync_all().unwrap();
                let flags = FallocateFlags::COLLAPSE_RANGE;
                return works(fallocate(file, flags, HEAD_LEN, BODY_LEN));
            }
            Act::Insert => {
                return works(fallocate(open(), FallocateFlags::INSERT_RANGE, 4096, 4096));
            }
            Act::CopyRange => {
                let calm = File::create(dir.join(format!("calm-{self:?}-{tag}"))).unwrap();
                calm.set_len(1).unwrap();
                let (mut from, mut to) = (0, 0);
                rustix::fs::copy_file_range(open(), Some(&mut from), &calm, Some(&mut to), 64)
                    .unwrap();
                // What was copied is a text of its own from here on.
                calm.write_all_at(&fill(&marks.kept, HEAD_LEN), 0).unwrap();
                calm.sync_all().unwrap();
                fs::remove_file(&path).unwrap();
            }
            Act::Mapped => {
                map_and_write(&open(), &marks.lost);
                fs::remove_file(&path).unwrap();
            }
            Act::Tree | Act::EmptyTree => fs::remove_dir_all(&path).unwrap(),
            Act::SetAttribute | Act::SetLargeAttribute => set(&path, "user.note", "calm"),
            Act::RemoveAttribute | Act::RemoveLargeAttribute => {
                removexattr(&path, "user.note").unwrap();
            }
            Act::Prealloc => {
                let file = open();
                file.set_len(100).unwrap();
                works(fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 256 << 10));
                drop(file);
                fs::remove_file(&path).unwrap();
            }
        }
        true
    }
}

fn works(done: rustix::io::Result<()>) -> bool {
    match done {
        Ok(()) => true,
        // Clusters are collapsed and inserted as a whole.
        Err(Errno::OPNOTSUPP | Errno::INVAL) => false,
        Err(e) => panic!("{e}"),
    }
}

fn set(path: &Path, name: &str, value: &str) {
    setxattr(path, name, value.as_bytes(), XattrFlags::empty()).unwrap();
}

/// `len` bytes that are full of a mark.
pub(crate) fn fill(mark: &str, len: u64) -> Vec<u8> {
    let len = usize::try_from(len).unwrap();
    let mut content = Vec::with_capacity(len + 64);
    for number in 0.. {
        if content.len() >= len {
            break;
        }
        writeln!(content, "{mark}{number:06}").unwrap();
    }
    content.truncate(len);
    content
}

/// Writes through a shared mapping that is gone again when this returns.
fn map_and_write(file: &File, text: &str) {
    // By a program of its own, so that the tests themselves need no unsafe code.
    let script = "import mmap,sys\nm=mmap.mmap(0,0)\nm[0:len(sys.argv[1])]=sys.argv[1].encode()\nm.flush()\n";
    let status = std::process::Command::new("python3")
        .args(["-c", script, text])
        .stdin(file.try_clone().unwrap())
        .status();
    match status {
        Ok(status) => assert!(status.success()),
        Err(e) => eprintln!("SKIPPED: writing through a mapping: python3: {e}"),
    }
}
