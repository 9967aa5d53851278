//! Inode flags, as `chattr` sets them: the kernel asks for them and sets them by the numbers of
//! `ioctl`.

use std::mem::size_of;

use fuser::{Errno, INodeNo, ReplyIoctl};

use super::adapter::Adapter;
use super::convert::fail;
use crate::{FileSystem, Kind, NodeId, Result};

/// `FS_IOC_GETFLAGS`.
const GET_FLAGS: u64 = libc::FS_IOC_GETFLAGS;
/// `FS_IOC_SETFLAGS`.
const SET_FLAGS: u64 = libc::FS_IOC_SETFLAGS;
/// `FS_IOC_FSGETXATTR`, by which the kernel looks at a node before it sets flags.
const GET_XFLAGS: u64 = 0x801c_581f;

/// Length of `struct fsxattr`, of which only the first number is told.
const XFLAGS_LEN: usize = 28;

/// Flags as `FS_IOC_GETFLAGS` and as `FS_IOC_FSGETXATTR` number them: immutable, append-only, sync,
/// noatime, nodump.
const BOTH: [(u32, u32); 5] = [(0x10, 0x8), (0x20, 0x10), (0x8, 0x20), (0x80, 0x40), (0x40, 0x80)];

impl<F: FileSystem> Adapter<F> {
    /// Answers what concerns inode flags; every other request is no business of a file.
    pub(super) fn control(
        &self,
        (number, node): (INodeNo, NodeId),
        command: u32,
        given: &[u8],
        reply: ReplyIoctl,
    ) {
        let command = u64::from(command);
        let told = match command {
            GET_FLAGS => self.posix.inode_flags(node).map(|flags| flags.to_ne_bytes().to_vec()),
            GET_XFLAGS => self.posix.inode_flags(node).map(xflags),
            SET_FLAGS => flags_of(given)
                .and_then(|flags| self.posix.set_inode_flags(node, flags))
                .map(|()| Vec::new()),
            _ => return reply.error(Errno::ENOTTY),
        };
        match told {
            Ok(bytes) if command == SET_FLAGS => {
                // Its times are others now.
                let answer = move || reply.ioctl(0, &bytes);
                self.invalidator.attributes_then(vec![number.0], answer);
            }
            Ok(bytes) => reply.ioctl(0, &bytes),
            Err(e) if e.kind() == Kind::Unsupported && command != SET_FLAGS => {
                reply.error(Errno::ENOTTY);
            }
            Err(e) => reply.error(fail("ioctl", &e)),
        }
    }
}

fn flags_of(given: &[u8]) -> Result<u32> {
    let bytes = given.get(..size_of::<u32>()).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or_else(|| Kind::Invalid.into())
}

fn xflags(flags: u32) -> Vec<u8> {
    let known = BOTH.iter().filter(|(flag, _)| flags & flag != 0);
    let xflags = known.fold(0, |xflags, (_, xflag)| xflags | xflag);
    let mut bytes = vec![0; XFLAGS_LEN];
    bytes[..size_of::<u32>()].copy_from_slice(&u32::to_ne_bytes(xflags));
    bytes
}
