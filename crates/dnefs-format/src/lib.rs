//! The format of DNEFS volumes: pure functions from bytes to what they mean, and back.
//!
//! `docs/spec/dnefs.md` says the same in words. Whoever reads a volume starts with the
//! [`Superblock`], which gives its [`Layout`]; keys lie in [`key_page`]s, everything else in
//! [`node`]s, whose content is a [`record`]; the [`checkpoint`] leads to all nodes that count.
//!
//! Nothing here reads a medium, holds a lock or knows the time. The file system and its audit share
//! this crate and nothing else.

pub mod checkpoint;
mod compression;
mod fields;
pub mod key_page;
mod layout;
pub mod node;
pub mod receipt;
pub mod record;
mod superblock;

pub use compression::Compression;
pub use fields::Malformed;
pub use layout::{KeyPos, LEBS_MIN, Layout, MainLeb, NODE_ALIGN, ROOT_LEBS, SUPERBLOCK_LEBS};
pub use superblock::{
    CipherChoice, Closed, MASTER_LEN, Parameters, Protection, Superblock, UUID_LEN, Unlocked,
};
