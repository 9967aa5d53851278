//! From plain types to those of the FUSE library and back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, INodeNo, Request, TimeOrNow};

use super::mount_options::Shown;
use crate::posix::{Caller, SetTime};
use crate::{Attr, Error, FileType, Kind, Timestamp};

/// Stands in a reply about a name that does not exist, whose number 0 says so.
pub(super) const ABSENT: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: fuser::FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};

/// The number to answer a failed operation with. Where it is the medium that failed, that is told:
/// whoever keeps the machine may never see what the program was answered.
pub(super) fn fail(operation: &str, error: &Error) -> Errno {
    if let Some(text) = text_for_log(operation, error) {
        log::error!("{text}");
    }
    Errno::from_i32(error.errno())
}

/// What a log hears of a failed operation, if anything: no words that may name a file or an offset.
fn text_for_log(operation: &str, error: &Error) -> Option<String> {
    let kind = error.kind();
    let by_medium = matches!(kind, Kind::Io | Kind::Corrupt | Kind::TimedOut | Kind::Unreachable);
    let why = error.own_words().map_or_else(String::new, |words| format!(": {words}"));
    (by_medium && !error.is_private()).then(|| format!("{operation}: {kind}{why}"))
}

pub(super) fn caller(request: &Request, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid(), umask }
}

pub(super) const fn file_type(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::File => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// The kind of node in the upper bits of a mode; plain zero stands for a file, as for `mknod`.
pub(super) const fn kind_of_mode(mode: u32) -> Option<FileType> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(FileType::File),
        libc::S_IFDIR => Some(FileType::Directory),
        libc::S_IFLNK => Some(FileType::Symlink),
        libc::S_IFIFO => Some(FileType::Fifo),
        libc::S_IFSOCK => Some(FileType::Socket),
        libc::S_IFCHR => Some(FileType::CharDevice),
        libc::S_IFBLK => Some(FileType::BlockDevice),
        _ => None,
    }
}

/// Attributes under the number that the reply must carry.
pub(super) fn attr(attr: &Attr, number: u64, shown: Shown) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attr.size,
        blocks: attr.blocks,
        atime: to_system_time(attr.atime),
        mtime: to_system_time(attr.mtime),
        ctime: to_system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: shown.umask.map_or(attr.perm, |umask| 0o777 & !umask),
        nlink: attr.nlink,
        uid: shown.uid.unwrap_or(attr.uid),
        gid: shown.gid.unwrap_or(attr.gid),
        rdev: attr.rdev,
        blksize: attr.block_len_bytes,
        flags: 0,
    }
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(from_request_time(time)),
    }
}

/// The time that a request carries.
///
/// The library builds times before 1970 by counting both seconds and nanoseconds backwards, so
/// -1 s and 0.25 s become 1.25 s before 1970 instead of 0.75 s. Reading them back the same way
/// gives what the program asked for.
pub(super) fn from_request_time(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => Timestamp::from(time),
        Err(before) => Timestamp {
            secs: -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
            nanos: before.duration().subsec_nanos(),
        },
    }
}

fn to_system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let whole = if time.secs >= 0 {
        UNIX_EPOCH.checked_add(Duration::from_secs(time.secs.unsigned_abs()))
    } else {
        UNIX_EPOCH.checked_sub(Duration::from_secs(time.secs.unsigned_abs()))
    };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_hears_the_program_s_own_words_alone() {
        let text = |error: &Error| text_for_log("lookup", error).unwrap_or_default();
        let broken = Kind::Io.to_string();
        let of_a_file = format!("{}: it broke", "name");
        assert_eq!(text(&Error::new(Kind::Io, of_a_file)), format!("lookup: {broken}"));
        let known = Error::new(Kind::Io, "it is another store");
        assert_eq!(text(&known), format!("lookup: {broken}: it is another store"));
        assert_eq!(text(&Kind::Io.into()), format!("lookup: {broken}"));
        assert_eq!(text(&known.in_private()), "");
        assert_eq!(text(&Error::new(Kind::NotFound, "no such thing")), "");
    }

    #[test]
    fn times_before_1970_survive() {
        let time = Timestamp { secs: -2, nanos: 750_000_000 };
        let system = to_system_time(time);
        assert_eq!(Timestamp::from(system), time);
        let as_the_library_does = UNIX_EPOCH - Duration::new(2, 750_000_000);
        assert_eq!(from_request_time(as_the_library_does), time);
    }
}
