//! What the tests of Tacita share: a file system in memory, mounts that clean up after
//! themselves, and the drivers of external conformance tools.

pub mod by_name;
mod copying;
mod environment;
pub mod history;
mod killing;
pub mod loop_disk;
pub mod memory_fs;
pub mod mount_guard;
pub mod own_memory;
pub mod s3_server;
pub mod search;
pub mod second_reader;
pub mod simulation;
pub mod strace;
mod system;
mod terminal;
pub mod watchdog;

pub use copying::copy_program;
pub use environment::{env_number, skip_without};
pub use killing::kill_daemon;
pub use memory_fs::{InoScheme, MemoryFs};
pub use mount_guard::{MountGuard, skip_without_fuse, unmount};
pub use system::system;
pub use terminal::Terminal;
pub use watchdog::Watchdog;
