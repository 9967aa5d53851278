//! Calls of the kernel that no library wraps: where a file lies, the journal of ext4, who has a
//! file open.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};

/// Extents that one call asks for.
const EXTENTS_AT_ONCE: usize = 64;

/// The last extent of the file.
pub(crate) const EXTENT_LAST: u32 = 0x0001;
/// The place is not known yet.
pub(crate) const EXTENT_UNKNOWN: u32 = 0x0002;
/// In memory only so far.
pub(crate) const EXTENT_DELALLOC: u32 = 0x0004;
/// Compressed, encrypted or in another way not as read.
pub(crate) const EXTENT_ENCODED: u32 = 0x0008;
/// Not at block boundaries: packed with other data.
pub(crate) const EXTENT_NOT_ALIGNED: u32 = 0x0100;
/// Room that has been promised; nothing has been written there.
pub(crate) const EXTENT_UNWRITTEN: u32 = 0x0800;
/// In the inode.
pub(crate) const EXTENT_INLINE: u32 = 0x0200;
/// Packed into a block with other files.
pub(crate) const EXTENT_TAIL: u32 = 0x0400;
/// Shared with other files.
pub(crate) const EXTENT_SHARED: u32 = 0x2000;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawExtent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    reserved64: [u64; 2],
    pub(crate) flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with room for extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_AT_ONCE],
}

/// The head alone, which the number of the call is made from.
#[repr(C)]
struct FiemapHead([u64; 4]);

const FIEMAP: Opcode = opcode::read_write::<FiemapHead>(b'f', 11);
const CHECKPOINT: Opcode = opcode::write::<u32>(b'f', 43);
const FIBMAP: Opcode = opcode::none(0, 1);
const FIGETBSZ: Opcode = opcode::none(0, 2);

/// Which signal tells of a lease that is broken; not in the library.
const F_SETSIG: i32 = 10;

/// What to do with the journal of ext4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    /// Nothing: only say whether it could be done.
    Ask = 4,
    /// Put everything in its place.
    Flush = 0,
    /// The same, and overwrite the journal with zeros.
    Erase = 2,
}

/// The extents of a file that overlap `start..start + length`, as far as one call gets.
pub(crate) fn extents(file: impl AsFd, start: u64, length: u64) -> Result<Vec<RawExtent>> {
    let mut map = Fiemap {
        start,
        length,
        flags: 0,
        mapped: 0,
        count: u32::try_from(EXTENTS_AT_ONCE).unwrap_or(0),
        reserved: 0,
        extents: [RawExtent::default(); EXTENTS_AT_ONCE],
    };
    // JUSTIFICATION: no safe wrapper of FS_IOC_FIEMAP exists.
    // SAFETY: `Fiemap` is laid out as the kernel's `struct fiemap` with `count` extents behind it,
    // and the kernel writes no more than `count` of them.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(file, Updater::<FIEMAP, Fiemap>::new(&mut map))?;
    }
    let mapped = usize::try_from(map.mapped).unwrap_or(0).min(EXTENTS_AT_ONCE);
    Ok(map.extents[..mapped].to_vec())
}

/// The block of the device that holds block `logical` of a file, 0 for a hole; for root, where
/// there is no map of extents.
pub(crate) fn block(file: impl AsFd, logical: u64) -> Result<u64> {
    let mut number = i32::try_from(logical).map_err(|_| Errno::FBIG)?;
    // JUSTIFICATION: no safe wrapper of FIBMAP exists.
    // SAFETY: FIBMAP reads and writes one int.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(file, Updater::<FIBMAP, i32>::new(&mut number))?;
    }
    // Numbers beyond 31 bits come out negative; the kernel means them unsigned.
    Ok(u64::from(number.cast_unsigned()))
}

/// The unit of [`block`] in bytes.
pub(crate) fn block_len_bytes(file: impl AsFd) -> Result<u64> {
    let mut len = 0_i32;
    // JUSTIFICATION: no safe wrapper of FIGETBSZ exists.
    // SAFETY: FIGETBSZ writes one int.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(file, Updater::<FIGETBSZ, i32>::new(&mut len))?;
    }
    u64::try_from(len).ok().filter(|len| *len > 0).ok_or(Errno::INVAL)
}

/// Begins to write back what of `file` is only in memory, and does not wait.
pub(crate) fn begin_write_back(file: impl AsFd) {
    // JUSTIFICATION: no safe wrapper of sync_file_range exists.
    // SAFETY: the descriptor is open; the call takes numbers only. Its result does not matter, for
    // whoever needs the data on the medium waits for it by fdatasync.
    #[allow(unsafe_code)]
    unsafe {
        let fd = file.as_fd().as_raw_fd();
        libc::sync_file_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Waits until all of `range` of `file` (of the whole, if that is empty) that was to be written back
/// has been handed to the device. Metadata are not, so only what lay in its place before is safe then;
/// nor is the device's own memory.
pub(crate) fn finish_write_back(file: impl AsFd, range: Range<u64>) -> Result<()> {
    let number = |bytes: u64| i64::try_from(bytes).map_err(|_| Errno::FBIG);
    let (at, len) = (number(range.start)?, number(range.end - range.start)?);
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // JUSTIFICATION: no safe wrapper of sync_file_range exists.
    // SAFETY: the descriptor is open; the call takes numbers only.
    #[allow(unsafe_code)]
    let done = unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), at, len, flags) };
    if done == 0 { Ok(()) } else { Err(crate::error::errno_of(&std::io::Error::last_os_error())) }
}

/// Puts what is in the journal of an ext4 in place, and erases it if told to.
pub(crate) fn checkpoint(any_file: impl AsFd, how: Checkpoint) -> Result<()> {
    // JUSTIFICATION: no safe wrapper of EXT4_IOC_CHECKPOINT exists.
    // SAFETY: EXT4_IOC_CHECKPOINT reads one u32 of flags.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(any_file, Setter::<CHECKPOINT, u32>::new(how as u32))
    }
}

/// Whether nobody but `file` has its inode open or mapped; `file` is open for reading and writing.
///
/// The kernel grants a lease for writing only then. It is given back at once.
pub(crate) fn is_ours_alone(file: impl AsFd) -> Result<bool> {
    let fd = file.as_fd().as_raw_fd();
    let lease = |command: i32, argument: i32| {
        // JUSTIFICATION: no safe wrapper of leases exists.
        // SAFETY: the descriptor is open, and these commands of fcntl take an int.
        #[allow(unsafe_code)]
        let done = unsafe { libc::fcntl(fd, command, argument) };
        if done == 0 {
            Ok(())
        } else {
            Err(crate::error::errno_of(&std::io::Error::last_os_error()))
        }
    };
    // Breaking a lease sends a signal, whose default would end the process; this one is ignored.
    lease(F_SETSIG, libc::SIGURG)?;
    match lease(libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => lease(libc::F_SETLEASE, libc::F_UNLCK).map(|()| true),
        Err(Errno::AGAIN | Errno::BUSY) => Ok(false),
        Err(e) => Err(e),
    }
}
