//! The hosted engine: one client of a store, on a machine that its users trust, that asks for all of them.
//!
//! Users and the engine share the store's key and speak through a channel that only who has it can enter
//! (`channel`), in messages of one length (`message`). A user whose connection is lost goes on
//! in the same session: what it asked is done once (`hosting`, `user`).
//!
//! Note: oram.md 4.6 and 4.7. docs/spec/oram-engine.md.

mod channel;
mod hosting;
pub mod message;
mod user;

pub use channel::{accept, open};
pub use hosting::Engine;
pub(crate) use user::User;

#[cfg(test)]
mod tests;
