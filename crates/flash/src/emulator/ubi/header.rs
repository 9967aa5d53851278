//! The two headers of a physical block, byte for byte as `drivers/mtd/ubi/ubi-media.h` of Linux has
//! them; numbers are big-endian.

use super::super::shape::Shape;
use super::checksum::checksum;

/// Length of either header.
pub(super) const HEADER_LEN: usize = 64;
/// Copies of the volume table, each a block of its own.
pub(super) const LAYOUT_COPIES: u32 = 2;

const EC_MAGIC: [u8; 4] = *b"UBI#";
const VID_MAGIC: [u8; 4] = *b"UBI!";
const VERSION: u8 = 1;
/// Type of volumes without a fixed content.
pub(super) const DYNAMIC: u8 = 1;
/// Volume of the volume table.
const LAYOUT_VOLUME: u32 = 0x7fff_efff;
/// The greatest erase counter that UBI takes for one.
pub(super) const ERASE_COUNTER_MAX: u64 = 0x7fff_ffff;
/// Greater sequence numbers come from no chip: so many operations take longer than it lives.
const SQNUM_MAX: u64 = u64::MAX / 2;
/// Whoever does not know the volume table must not attach.
const COMPAT_REJECT: u8 = 5;
/// The only other volume.
const DATA_VOLUME: u32 = 0;
const CRC_AT: usize = HEADER_LEN - 4;

/// The erase counter header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EcHeader {
    pub(super) erase_counter: u64,
    /// The same in all blocks of an image.
    pub(super) image_seq: u32,
}

/// Whose content a physical block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// A copy of the volume table.
    Layout(u32),
    /// A logical erase block of the volume.
    Data(u32),
}

/// The volume identifier header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VidHeader {
    pub(super) owner: Owner,
    /// Greater than that of all that was mapped before.
    pub(super) sqnum: u64,
    /// Length and checksum of content that was written with the header, and which counts only if
    /// all of it has arrived.
    pub(super) copy: Option<(u32, u32)>,
}

/// Why a header says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unread {
    /// It was torn or never written.
    Torn,
    /// It is whole, and not ours.
    Foreign(String),
}

impl EcHeader {
    pub(super) fn encode(self, shape: Shape) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&EC_MAGIC);
        bytes[4] = VERSION;
        bytes[8..16].copy_from_slice(&self.erase_counter.to_be_bytes());
        bytes[16..20].copy_from_slice(&shape.vid_offset().to_be_bytes());
        bytes[20..24].copy_from_slice(&shape.data_offset().to_be_bytes());
        bytes[24..28].copy_from_slice(&self.image_seq.to_be_bytes());
        seal(bytes)
    }

    pub(super) fn decode(bytes: &[u8; HEADER_LEN], shape: Shape) -> Result<Self, Unread> {
        check(bytes, EC_MAGIC)?;
        let header = Self { erase_counter: be_u64(bytes, 8), image_seq: be_u32(bytes, 24) };
        if header.erase_counter > ERASE_COUNTER_MAX {
            return Err(Unread::Foreign(format!("erase counter {}", header.erase_counter)));
        }
        if header.encode(shape) != *bytes {
            return Err(Unread::Foreign("an EC header of another shape".into()));
        }
        Ok(header)
    }
}

impl VidHeader {
    pub(super) fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&VID_MAGIC);
        bytes[4] = VERSION;
        bytes[5] = DYNAMIC;
        bytes[6] = u8::from(self.copy.is_some());
        let (volume, number, compat) = match self.owner {
            Owner::Layout(copy) => (LAYOUT_VOLUME, copy, COMPAT_REJECT),
            Owner::Data(leb) => (DATA_VOLUME, leb, 0),
        };
        bytes[7] = compat;
        bytes[8..12].copy_from_slice(&volume.to_be_bytes());
        bytes[12..16].copy_from_slice(&number.to_be_bytes());
        let (len_bytes, crc) = self.copy.unwrap_or_default();
        bytes[20..24].copy_from_slice(&len_bytes.to_be_bytes());
        bytes[32..36].copy_from_slice(&crc.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.sqnum.to_be_bytes());
        seal(bytes)
    }

    pub(super) fn decode(bytes: &[u8; HEADER_LEN], shape: Shape) -> Result<Self, Unread> {
        check(bytes, VID_MAGIC)?;
        let number = be_u32(bytes, 12);
        let owner = match be_u32(bytes, 8) {
            LAYOUT_VOLUME if number < LAYOUT_COPIES => Owner::Layout(number),
            DATA_VOLUME => Owner::Data(number),
            volume => {
                return Err(Unread::Foreign(format!("block {number} of volume {volume:#x}")));
            }
        };
        let len_bytes = be_u32(bytes, 20);
        let copy = (bytes[6] != 0).then(|| (len_bytes, be_u32(bytes, 32)));
        let header = Self { owner, sqnum: be_u64(bytes, 40), copy };
        if header.sqnum > SQNUM_MAX {
            return Err(Unread::Foreign(format!("sequence number {}", header.sqnum)));
        }
        let fits = copy.is_none_or(|(len, _)| (1..=shape.leb_len_bytes()).contains(&len));
        if !fits || header.encode() != *bytes {
            return Err(Unread::Foreign("a VID header that UBI does not write here".into()));
        }
        Ok(header)
    }
}

/// Puts the checksums of the headers of a block right.
#[cfg(feature = "faults")]
pub(in crate::emulator) fn mend(block: &mut [u8], shape: Shape) {
    for at in [0, shape.vid_offset() as usize] {
        let crc = checksum(&[&block[at..at + CRC_AT]]);
        block[at + CRC_AT..at + HEADER_LEN].copy_from_slice(&crc.to_be_bytes());
    }
}

fn check(bytes: &[u8; HEADER_LEN], magic: [u8; 4]) -> Result<(), Unread> {
    if !bytes.starts_with(&magic) || be_u32(bytes, CRC_AT) != checksum(&[&bytes[..CRC_AT]]) {
        return Err(Unread::Torn);
    }
    if bytes[4] != VERSION {
        return Err(Unread::Foreign(format!("version {} of UBI", bytes[4])));
    }
    Ok(())
}

fn seal(mut bytes: [u8; HEADER_LEN]) -> [u8; HEADER_LEN] {
    let crc = checksum(&[&bytes[..CRC_AT]]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn be_u32(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn be_u64(bytes: &[u8; HEADER_LEN], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
