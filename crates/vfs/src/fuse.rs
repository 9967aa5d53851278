//! The adapter between the POSIX rules and FUSE, and mounting.
//!
//! The adapter holds no rules: it turns requests into calls of [`crate::Posix`] and answers into replies.
//! What it adds is what only a kernel needs: numbers for nodes (`node_table`), how long answers
//! may be cached, and word to the kernel about caches that have become wrong (`invalidator`).
//!
//! Every change passes through the mount, so the kernel may cache names, attributes and pages for
//! as long as it likes. The exceptions are inode numbers, which a system may let change when a
//! name above a node changes: see `node_table`.

mod adapter;
mod answers;
mod backing;
mod changes;
mod convert;
mod entries;
mod hands;
mod holders;
mod inode_flags;
mod invalidator;
mod lingering;
mod mount;
mod mount_options;
mod mount_table;
mod node_table;
mod remount;
mod requests;
mod session_threads;
mod set_id;
mod sync_timer;
mod unmount;

pub use mount::{Mount, can_mount, mount};
pub use mount_options::MountOptions;
pub use remount::remount;
pub use unmount::{detach, unmount, unmount_telling, unmount_within};
