//! A NAND chip in a file or in memory, with one volume of UBI on it.
//!
//! A raw dump of it ([`Emulator::dump`]) is what Linux writes on a real chip, and Linux attaches it.

mod backing;
mod damage;
#[cfg(feature = "faults")]
pub mod disk;
#[cfg(feature = "faults")]
pub mod hostile;
mod image;
mod medium;
mod memory;
mod nand;
mod options;
mod power;
mod shape;
mod state;
mod ubi;

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use self::backing::Backing;
use self::image::Image;
use self::medium::Medium;
use self::memory::Memory;
use self::nand::Nand;

use self::shape::Shape;
use self::state::{Mark, State};
use self::ubi::Ubi;
use crate::access::{self, Access};
use crate::faults::{Fault, planted};
use crate::random::Random;
use crate::{EraseReport, Error, Geometry, Leb, Result, Volume};

pub use self::damage::Damage;
pub use self::options::{Behaviour, EmulatorOptions, EraseMode};
pub use self::power::CutMode;
pub use self::ubi::BlockWear;

/// The stream of the seed that decides what an image is called.
const IMAGE_STREAM: u64 = 2;

/// A volume on an emulated chip.
///
/// It programs in order and at once: a power cut leaves all that was done before it.
#[derive(Debug)]
pub struct Emulator {
    ubi: Ubi,
}

impl Emulator {
    /// Makes an image at `path`, for its owner alone, or empties the file there is, and locks it. A
    /// file whose making was cut short is no image.
    ///
    /// # Errors
    /// [`crate::Kind::Busy`] if another process has it open; [`crate::Kind::OutOfRange`] for options
    /// that cannot be; [`crate::Kind::Unavailable`]; [`crate::Kind::NoSpace`]; [`crate::Kind::Io`].
    pub fn create(path: impl AsRef<Path>, options: &EmulatorOptions) -> Result<Self> {
        options.shape()?;
        let flash =
            Self::create_in(image::open_locked(path.as_ref(), Access::ReadWrite, true)?, options)?;
        image::sync_name(path.as_ref())?;
        Ok(flash)
    }

    /// [`Emulator::create`] in a file that is open for reading and writing, with a name or without;
    /// the name is made durable by the caller.
    ///
    /// # Errors
    /// As there.
    pub fn create_in(file: File, options: &EmulatorOptions) -> Result<Self> {
        let shape = options.shape()?;
        access::lock(&file, &"the image", Access::ReadWrite)?;
        let again = file.try_clone().map_err(|e| Error::from_io("cannot make an image", e))?;
        Self::create_on(Backing::File(file), shape, options)?;
        Self::open_in(again, options.behaviour)
    }

    /// Opens the image at `path` and locks it.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`] with what is wrong; [`crate::Kind::Busy`] if another process has it
    /// open; [`crate::Kind::Unavailable`]; [`crate::Kind::ReadOnly`] if it can be opened for reading only;
    /// [`crate::Kind::Io`].
    pub fn open(path: impl AsRef<Path>, behaviour: Behaviour) -> Result<Self> {
        Self::open_in(image::open_locked(path.as_ref(), Access::ReadWrite, false)?, behaviour)
    }

    /// [`Emulator::open`] of a file that is open for reading and writing.
    ///
    /// # Errors
    /// As there.
    pub fn open_in(file: File, behaviour: Behaviour) -> Result<Self> {
        access::lock(&file, &"the image", Access::ReadWrite)?;
        Self::open_on(Backing::File(file), Access::ReadWrite, behaviour)
    }

    /// Opens the image at `path` for reading, beside others who do: nothing of it changes, and what would
    /// write fails with [`crate::Kind::ReadOnly`].
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`] with what is wrong; [`crate::Kind::Busy`] if another process has it open
    /// for writing; [`crate::Kind::Unavailable`]; [`crate::Kind::Io`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        if planted(Fault::ReadersWrite) {
            return Self::open(path, Behaviour::default());
        }
        let file = image::open_locked(path.as_ref(), Access::ReadOnly, false)?;
        Self::open_on(Backing::File(file), Access::ReadOnly, Behaviour::default())
    }

    /// [`Emulator::create`] on a disk.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "faults")]
    pub fn create_on_disk(disk: Arc<disk::Disk>, options: &EmulatorOptions) -> Result<Self> {
        Self::create_on(Backing::Disk(disk.clone()), options.shape()?, options)?;
        Self::open_on_disk(disk, options.behaviour)
    }

    /// [`Emulator::open`] on a disk.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "faults")]
    pub fn open_on_disk(disk: Arc<disk::Disk>, behaviour: Behaviour) -> Result<Self> {
        Self::open_on(Backing::Disk(disk), Access::ReadWrite, behaviour)
    }

    /// [`Emulator::open_read_only`] on a disk.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "faults")]
    pub fn open_on_disk_read_only(disk: Arc<disk::Disk>) -> Result<Self> {
        Self::open_on(Backing::Disk(disk), Access::ReadOnly, Behaviour::default())
    }

    fn create_on(backing: Backing, shape: Shape, options: &EmulatorOptions) -> Result<()> {
        let image = Arc::new(Image::begin(backing, shape)?);
        format(Medium::File(image.clone()), shape, options)?;
        image.finish()
    }

    fn open_on(backing: Backing, access: Access, behaviour: Behaviour) -> Result<Self> {
        let (image, states) = Image::open(backing, access)?;
        let shape = image.shape();
        Self::attach(Nand::new(shape, Medium::File(Arc::new(image)), &states, behaviour), behaviour)
    }

    /// A chip in memory.
    ///
    /// # Errors
    /// [`crate::Kind::OutOfRange`] for options that cannot be.
    pub fn in_memory(options: &EmulatorOptions) -> Result<Self> {
        let shape = options.shape()?;
        let medium = Medium::Memory(Arc::new(Memory::new(shape)));
        let formatted = format(medium, shape, options)?;
        Self::attach(formatted.nand().powered_on(), options.behaviour)
    }

    /// The chip when the power has come back, with all that was done before the cut and no more. This
    /// one loses its power now, if it had not yet.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`], if whoever wrote was wrong.
    pub fn power_on(&self) -> Result<Self> {
        Self::attach(self.ubi.nand().powered_on(), self.ubi.behaviour())
    }

    /// A copy in memory of the chip as it is now, with power, if nobody writes meanwhile. Copies of
    /// chips in memory share what neither has changed.
    ///
    /// # Errors
    /// [`crate::Kind::Io`].
    pub fn snapshot(&self) -> Result<Self> {
        Self::attach(self.ubi.nand().snapshot()?, self.ubi.behaviour())
    }

    fn attach(nand: Nand, behaviour: Behaviour) -> Result<Self> {
        Ok(Self { ubi: Ubi::attach(nand, behaviour)? })
    }

    /// Number of the next program or erase; they are counted from 0 whenever the power comes on.
    pub fn operations(&self) -> u64 {
        self.ubi.nand().power.next()
    }

    /// Cuts the power at the program or erase of this number: from then on everything fails with
    /// [`crate::Kind::PowerCut`], but for [`Emulator::dump`], [`Emulator::power_on`] and
    /// [`Emulator::wear`].
    pub fn cut_at(&self, number: u64, mode: CutMode) {
        self.ubi.nand().power.cut_at(number, mode);
    }

    /// Breaks something of the chip.
    pub fn damage(&self, damage: Damage) {
        self.ubi.nand().add_damage(damage);
    }

    /// What is to be known of each physical block.
    pub fn wear(&self) -> Vec<BlockWear> {
        self.ubi.wear()
    }

    /// Writes every physical block as it is, stale and bad ones, too, one after the other; where nothing
    /// could be read, and zeros were written.
    ///
    /// # Errors
    /// [`crate::Kind::Io`], [`crate::Kind::NoSpace`].
    pub fn dump(&self, out: &mut dyn Write) -> Result<Vec<Range<u64>>> {
        self.ubi.nand().dump(out)
    }
}

impl Volume for Emulator {
    fn geometry(&self) -> Geometry {
        self.ubi.geometry()
    }

    fn read(&self, leb: Leb, offset: u32, buf: &mut [u8]) -> Result<()> {
        self.geometry().check_read(leb, offset, buf.len())?;
        self.ubi.read(leb, offset, buf)
    }

    fn append(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<()> {
        self.geometry().check_write(leb, offset, data.len())?;
        self.ubi.nand().check_writable()?;
        self.ubi.append(leb, offset, data)
    }

    fn change(&self, leb: Leb, data: &[u8]) -> Result<()> {
        self.geometry().check_write(leb, 0, data.len())?;
        self.ubi.nand().check_writable()?;
        self.ubi.change(leb, data)
    }

    fn map(&self, leb: Leb) -> Result<()> {
        self.geometry().check_read(leb, 0, 0)?;
        self.ubi.nand().check_writable()?;
        self.ubi.map(leb)
    }

    fn unmap(&self, leb: Leb) -> Result<()> {
        self.geometry().check_read(leb, 0, 0)?;
        self.ubi.nand().check_writable()?;
        self.ubi.unmap(leb)
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool> {
        self.geometry().check_read(leb, 0, 0)?;
        self.ubi.is_mapped(leb)
    }

    fn missed(&self) -> Option<Error> {
        self.ubi.missed()
    }

    fn sync(&self) -> Result<()> {
        self.ubi.sync()
    }

    fn flush_erases(&self) -> Result<EraseReport> {
        self.ubi.nand().check_writable()?;
        self.ubi.flush_erases()
    }
}

/// Puts a volume on a new medium.
fn format(medium: Medium, shape: Shape, options: &EmulatorOptions) -> Result<Ubi> {
    let bad = options.factory_bad(shape);
    let lebs = options.geometry()?.lebs;
    let states: Vec<State> = bad
        .into_iter()
        .map(|is_bad| State {
            mark: if is_bad { Mark::FactoryBad } else { Mark::Good },
            ..State::NEW
        })
        .collect();
    for (peb, state) in shape.pebs().zip(&states).filter(|(_, state)| **state != State::NEW) {
        medium.set_state(peb, *state)?;
    }
    let nand = Nand::new(shape, medium, &states, options.behaviour);
    let image_seq = Random::new(options.behaviour.seed, IMAGE_STREAM).next();
    let image_seq = u32::try_from(image_seq >> 32).expect("32 bits");
    Ubi::format(nand, lebs, options.behaviour, image_seq)
}
