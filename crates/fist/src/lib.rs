//! Instruments the C source of Linux file systems by extensions in `FiST`.
//!
//! A [`Folder`] is the source of a file system, an [`Extension`] a page of rules, a [`Kernel`] what the
//! kernel's header says of operation vectors. [`instrument`] makes a new file system of them: the same
//! source with code put into its operations by edits of bytes, and files beside it. [`difference`] shows
//! what was done.
//!
//! It is a tool: it touches no file system and no device, and writes nothing. The language is in
//! docs/spec/fist.md, the reasons in docs/design/fist.md.
//!
//! Paper: Purgefs, sections 3.1 and 4.

#![forbid(unsafe_code)]

mod blanking;
mod check;
mod difference;
mod edits;
mod error;
mod expansion;
mod extension;
pub mod faults;
mod folder;
mod generated;
mod includes;
mod initialiser;
mod instrument;
mod kernel;
mod lexer;
mod makefile;
mod naming;
mod plan;
mod shipped;
mod source;
mod survey;
mod weaving;

pub use difference::difference;
pub use error::{Error, Kind, Place, Result};
pub use extension::Extension;
pub use folder::Folder;
pub use instrument::{Instrumented, Report, instrument};
pub use kernel::Kernel;
pub use shipped::{EXAMPLE, SHIPPED, shipped};
pub use survey::{Owner, Understanding, Vector};
