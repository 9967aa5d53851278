//! PD-DM: one public and several hidden volumes on one device, deniable against somebody who takes
//! many snapshots of it and has the public password.
//!
//! Paper: Chen, Chakraborti, Sion: PD-DM, `PoPETs` 2019. All writes go to a log of *units*; each unit
//! has public slots and hidden slots, and when, where and how much is written follows from the
//! public volume alone. A hidden block takes the place of noise in a unit that is written anyway.
//!
//! - [`init`], [`Session`], [`change_password`]: making and opening a device.
//! - [`Volume`]: an open volume, a [`tacita_block::BlockDevice`].
//! - [`Geometry`], [`Parameters`], [`Level`]: shapes and shares.
//!
//! Pure, and where a reader should begin: `unit` (bytes of a unit), `keys`, `map`. Then `sequencer`,
//! which decides what goes where, and `recovery`. Bytes: docs/spec/pddm.md. Departures from the
//! paper: docs/design/pddm.md.

mod buffers;
mod check;
#[cfg(feature = "faults")]
pub mod classic;
mod cost;
mod engine;
mod entropy;
mod error;
pub mod examine;
#[cfg(not(feature = "faults"))]
#[allow(unreachable_pub, reason = "public with the feature only")]
mod faults;
#[cfg(feature = "faults")]
pub mod faults;
mod filling;
mod geometry;
mod heartbeat;
#[cfg(feature = "faults")]
pub mod hostile;
mod in_flight;
mod init;
mod keys;
mod level;
mod log;
mod map;
mod open_log;
mod password;
mod plan;
mod recovery;
mod replay;
mod seal;
mod sequencer;
mod session;
mod slots;
mod stage;
mod superblock;
mod sweep;
mod tail;
mod team;
mod unit;
mod unlock;
mod volume;
mod writer;

pub use check::Damage;
pub use cost::{Traffic, amplification, hidden_per_public};
pub use entropy::{Entropy, Source};
pub use error::{Error, Kind, Result};
pub use geometry::{
    BLOCK_LEN, CLASSES_MAX, DEVICE_LEN_MAX_BYTES, Geometry, Level, Parameters, Seq,
};
pub use heartbeat::Heartbeat;
pub use init::{Making, init};
pub use password::{change_password, check_new_password};
pub use session::{Options, Session, Unread};
pub use unlock::Unlock;
pub use volume::{HiddenFlush, Volume};
