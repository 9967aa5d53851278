//! What Linux tells of a volume, and of the chip below it, in files.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Error, Geometry, Kind, Result};

/// The folder of a volume; that of its device holds it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Of the volume behind a file.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if that is no volume of UBI whose blocks can be written.
    pub(super) fn of(file: &fs::Metadata) -> Result<Self> {
        let no_volume = || Error::new(Kind::Unavailable, "this is no volume of UBI");
        let device = file.st_rdev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let path = PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
        let folder = Self { path };
        match folder.text("type") {
            Ok(kind) if kind == "dynamic" => Ok(folder),
            Ok(kind) if kind == "static" => {
                let text = "the blocks of a static volume of UBI cannot be written one by one";
                Err(Error::new(Kind::Unavailable, text))
            }
            _ => Err(no_volume()),
        }
    }

    /// Another one.
    pub(super) const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The shape of the volume with all of its blocks.
    pub(super) fn geometry(&self) -> Result<Geometry> {
        Ok(Geometry {
            leb_len_bytes: self.number("usable_eb_size")?,
            lebs: self.number("reserved_ebs")?,
            page_len_bytes: self.number("../min_io_size")?,
        })
    }

    /// Number of blocks of the device that are out of use.
    pub(super) fn bad_blocks(&self) -> Result<u32> {
        self.number("../bad_peb_count")
    }

    pub(super) fn number<T: FromStr>(&self, name: &str) -> Result<T> {
        let text = self.text(name)?;
        text.parse().map_err(|_| {
            let path = self.path.join(name);
            Error::new(Kind::Io, format!("{} says {text:?}, which is no number", path.display()))
        })
    }

    fn text(&self, name: &str) -> Result<String> {
        let path = self.path.join(name);
        let text = fs::read_to_string(&path)
            .map_err(|e| Error::from_io(format!("cannot read {}", path.display()), e))?;
        Ok(text.trim_end().to_owned())
    }
}
