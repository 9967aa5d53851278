//! `tacita fist ...`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Fist {
    /// Show the operation vectors of a file system's source, and their handlers
    Vectors {
        /// Folder of the file system in a kernel's source, or one file of C
        source: PathBuf,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a new file system of a source and an extension; it builds outside of the kernel's tree
    ///
    /// Nothing is loaded or built here: make in FOLDER builds the module against the headers of a
    /// kernel, which must be of the source's own version.
    Instrument {
        /// Folder of the file system in a kernel's source, or one file of C
        source: PathBuf,
        /// The extension: a file, or one that comes with the program: trace, purge, readonly
        extension: PathBuf,
        /// Where the new source is put; there is nothing yet
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
        /// Name of the new file system, or what its names begin with if there are several; that of the
        /// extension and the old one by default
        #[arg(long)]
        name: Option<String>,
        /// Write what differs from the source as a patch
        #[arg(long, value_name = "FILE")]
        diff: Option<PathBuf>,
        /// Headers of the source's kernel, where it lies in no kernel's source
        #[arg(long, value_name = "FOLDER")]
        headers: Option<PathBuf>,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
}
