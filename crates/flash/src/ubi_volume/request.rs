//! What Linux is asked for, `mtd/ubi-user.h`.

use std::ffi::c_void;
use std::os::fd::AsFd;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// The group of requests to a volume.
const GROUP: u8 = b'O';
/// The property of a volume that makes it writable block by block.
const DIRECT_WRITE: u8 = 1;
/// A hint of long ago.
const UNKNOWN_LIFETIME: u8 = 3;

/// `struct ubi_leb_change_req`.
#[repr(C, packed)]
struct ChangeRequest {
    leb: i32,
    len_bytes: i32,
    lifetime: u8,
    padding: [u8; 7],
}

/// `struct ubi_map_req`.
#[repr(C, packed)]
struct MapRequest {
    leb: i32,
    lifetime: u8,
    padding: [u8; 3],
}

/// `struct ubi_set_vol_prop_req`.
#[repr(C, packed)]
struct PropertyRequest {
    property: u8,
    padding: [u8; 7],
    value: u64,
}

/// A request with what it points to.
struct Request<T> {
    opcode: Opcode,
    argument: T,
}

// JUSTIFICATION: no library has these requests.
// SAFETY: each opcode below comes with the argument that the kernel reads for it, which it does not
// write to; the result is a number.
#[allow(unsafe_code)]
unsafe impl<T> Ioctl for Request<T> {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.argument).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

/// Lets pages be written one by one.
pub(super) fn allow_direct_write(volume: impl AsFd) -> rustix::io::Result<()> {
    let argument = PropertyRequest { property: DIRECT_WRITE, padding: [0; 7], value: 1 };
    ask(volume, opcode::write::<PropertyRequest>(GROUP, 6), argument).map(drop)
}

/// Announces that the next write of so many bytes is the new content of a block; an empty one is
/// changed to at once.
pub(super) fn begin_change(volume: impl AsFd, leb: i32, len: i32) -> rustix::io::Result<()> {
    let lifetime = UNKNOWN_LIFETIME;
    let argument = ChangeRequest { leb, len_bytes: len, lifetime, padding: [0; 7] };
    // The number of this request says that its argument has four bytes; it has sixteen.
    ask(volume, opcode::write::<i32>(GROUP, 2), argument).map(drop)
}

/// Takes its physical block from a block and erases everything that waits for it.
pub(super) fn unmap_and_flush(volume: impl AsFd, leb: i32) -> rustix::io::Result<()> {
    ask(volume, opcode::write::<i32>(GROUP, 1), leb).map(drop)
}

pub(super) fn map(volume: impl AsFd, leb: i32) -> rustix::io::Result<()> {
    let argument = MapRequest { leb, lifetime: UNKNOWN_LIFETIME, padding: [0; 3] };
    ask(volume, opcode::write::<MapRequest>(GROUP, 3), argument).map(drop)
}

pub(super) fn unmap(volume: impl AsFd, leb: i32) -> rustix::io::Result<()> {
    ask(volume, opcode::write::<i32>(GROUP, 4), leb).map(drop)
}

pub(super) fn is_mapped(volume: impl AsFd, leb: i32) -> rustix::io::Result<bool> {
    ask(volume, opcode::read::<i32>(GROUP, 5), leb).map(|answer| answer == 1)
}

fn ask<T>(volume: impl AsFd, opcode: Opcode, argument: T) -> rustix::io::Result<i32> {
    // JUSTIFICATION: no safe wrapper of these requests exists.
    // SAFETY: `Request` says what the kernel reads; the descriptor is open, and one that is no volume
    // of UBI refuses these numbers.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(volume, Request { opcode, argument })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers as a C compiler makes them of `mtd/ubi-user.h`.
    #[test]
    fn numbers_and_lengths_are_those_of_the_header() {
        assert_eq!(size_of::<ChangeRequest>(), 16);
        assert_eq!(size_of::<MapRequest>(), 8);
        assert_eq!(size_of::<PropertyRequest>(), 16);
        assert_eq!(opcode::write::<PropertyRequest>(GROUP, 6), 0x4010_4f06);
        assert_eq!(opcode::write::<i32>(GROUP, 2), 0x4004_4f02);
        assert_eq!(opcode::write::<i32>(GROUP, 1), 0x4004_4f01);
        assert_eq!(opcode::write::<MapRequest>(GROUP, 3), 0x4008_4f03);
        assert_eq!(opcode::write::<i32>(GROUP, 4), 0x4004_4f04);
        assert_eq!(opcode::read::<i32>(GROUP, 5), 0x8004_4f05);
    }
}
