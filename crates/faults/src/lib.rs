//! Planted faults: each breaks one guarantee, at the one place where the right thing is done, and a
//! test must fail with it.
//!
//! [`plantable!`] makes an enum of a crate its faults. They are asked for in shipped code, and can be
//! planted only where that crate is built with its feature `faults`; without it the question is a
//! constant and nothing of it is compiled.

mod plantable;
mod planted;

pub use planted::Planted;
