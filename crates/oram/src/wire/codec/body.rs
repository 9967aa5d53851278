//! Parts of bodies: what is not there is never read.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Generation, Head, Object, PREFIX_LEN_MAX, Refusal, WITH_ITEM, WITH_PAGE, protocol};
use crate::blob::ROOT_LEN_MAX;
use crate::error::Result;
use crate::geometry::{LABEL_LEN, LEVELS_MAX};
use crate::object::OBJECT_LEN;
use crate::wire::{ItemAddress, PageAddress};

/// What is left of a body.
pub(super) struct Body {
    bytes: Bytes,
}

impl Body {
    pub(super) fn new(head: Head, bytes: Bytes) -> Result<Self> {
        if bytes.len() == head.len {
            Ok(Self { bytes })
        } else {
            Err(protocol("a body that is not as long as its header says"))
        }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<Bytes> {
        if self.bytes.len() < len {
            return Err(protocol("a body that ends too early"));
        }
        Ok(self.bytes.split_to(len))
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        self.take(N)?.copy_to_slice(&mut array);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn zeros(&mut self, len: usize) -> Result<()> {
        if self.take(len)?.iter().any(|byte| *byte != 0) {
            return Err(protocol("bytes where there are none"));
        }
        Ok(())
    }

    pub(super) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes)
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { Err(protocol("a body that goes on too long")) }
    }

    /// A byte with no bits but those of `mask`, and seven zeros.
    pub(super) fn padded(&mut self, mask: u8) -> Result<u8> {
        let byte = self.u8()?;
        self.zeros(7)?;
        if byte & !mask != 0 { Err(protocol("a number of no meaning")) } else { Ok(byte) }
    }

    pub(super) fn object(&mut self) -> Result<Object> {
        let bytes: [u8; OBJECT_LEN] = self.array()?;
        Object::decode(&bytes).ok_or_else(|| protocol("a name of no object"))
    }

    pub(super) fn names(&mut self) -> Result<Vec<Object>> {
        (0..self.bytes.len() / OBJECT_LEN).map(|_| self.object()).collect()
    }

    pub(super) fn refusal(&mut self) -> Result<Refusal> {
        let code = self.padded(u8::MAX)?;
        Refusal::from_code(code).ok_or_else(|| protocol("a refusal for no reason"))
    }

    pub(super) fn fetch(&mut self) -> Result<(Option<PageAddress>, Option<ItemAddress>)> {
        let flags = self.padded(WITH_PAGE | WITH_ITEM)?;
        let mut page = None;
        if flags & WITH_PAGE == 0 {
            self.zeros(16)?;
        } else {
            let level = self.u8()?;
            self.zeros(3)?;
            let number = self.u32()?;
            let generation = self.generation(level)?;
            page = Some(PageAddress { generation, page: number });
        }
        let mut item = None;
        if flags & WITH_ITEM == 0 {
            self.zeros(16 + LABEL_LEN)?;
        } else {
            let level = self.u8()?;
            self.zeros(7)?;
            let generation = self.generation(level)?;
            item = Some(ItemAddress { generation, label: self.array()? });
        }
        if page.is_none() && item.is_none() {
            return Err(protocol("a fetch of nothing"));
        }
        Ok((page, item))
    }

    fn generation(&mut self, level: u8) -> Result<Generation> {
        let generation = Generation { level, number: self.u64()? };
        if level == 0 || usize::from(level) > LEVELS_MAX || generation.number == 0 {
            return Err(protocol("a generation that no store has"));
        }
        Ok(generation)
    }

    pub(super) fn list(&mut self) -> Result<(String, Option<Object>)> {
        let len = usize::from(self.u8()?);
        let has_after = self.u8()?;
        self.zeros(6)?;
        let after = match has_after {
            0 => {
                self.zeros(OBJECT_LEN)?;
                None
            }
            1 => Some(self.object()?),
            _ => return Err(protocol("a number of no meaning")),
        };
        if len > PREFIX_LEN_MAX {
            return Err(protocol("a prefix that is longer than any"));
        }
        let prefix = self.take(len)?;
        self.zeros(PREFIX_LEN_MAX - len)?;
        if !is_prefix(&prefix) {
            return Err(protocol("a prefix that no name has"));
        }
        Ok((prefix.iter().copied().map(char::from).collect(), after))
    }

    pub(super) fn roots(&mut self) -> Result<(Bytes, Bytes)> {
        let expected = usize::from(self.u16()?);
        let new = usize::from(self.u16()?);
        self.zeros(4)?;
        if expected.max(new) > ROOT_LEN_MAX {
            return Err(protocol("a root that is longer than any"));
        }
        Ok((self.take(expected)?, self.take(new)?))
    }
}

/// A byte and seven zeros.
pub(super) fn put_padded(out: &mut BytesMut, byte: u8) {
    out.put_u8(byte);
    out.put_bytes(0, 7);
}

pub(super) fn put_fetch(
    out: &mut BytesMut,
    page: Option<&PageAddress>,
    item: Option<&ItemAddress>,
) {
    let with_page = u8::from(page.is_some()) * WITH_PAGE;
    put_padded(out, with_page + u8::from(item.is_some()) * WITH_ITEM);
    if let Some(PageAddress { generation, page }) = page {
        out.put_u8(generation.level);
        out.put_bytes(0, 3);
        out.put_u32_le(*page);
        out.put_u64_le(generation.number);
    } else {
        out.put_bytes(0, 16);
    }
    if let Some(ItemAddress { generation, label }) = item {
        put_padded(out, generation.level);
        out.put_u64_le(generation.number);
        out.put_slice(label);
    } else {
        out.put_bytes(0, 16 + LABEL_LEN);
    }
}

pub(super) fn put_list(out: &mut BytesMut, prefix: &str, after: Option<&Object>) -> Result<()> {
    if prefix.len() > PREFIX_LEN_MAX || !is_prefix(prefix.as_bytes()) {
        return Err(protocol("a prefix that no name has"));
    }
    out.put_u8(u8::try_from(prefix.len()).expect("a prefix is short"));
    out.put_u8(u8::from(after.is_some()));
    out.put_bytes(0, 6);
    out.put_slice(&after.map_or([0; OBJECT_LEN], Object::encode));
    out.put_slice(prefix.as_bytes());
    out.put_bytes(0, PREFIX_LEN_MAX - prefix.len());
    Ok(())
}

pub(super) fn put_roots(out: &mut BytesMut, expected: &Bytes, new: &Bytes) -> Result<()> {
    for root in [expected, new] {
        let len = u16::try_from(root.len()).ok().filter(|len| usize::from(*len) <= ROOT_LEN_MAX);
        out.put_u16_le(len.ok_or_else(|| protocol("a root that is longer than any"))?);
    }
    out.put_bytes(0, 4);
    out.put_slice(expected);
    out.put_slice(new);
    Ok(())
}

/// What names consist of, so that a prefix is safe in any store.
fn is_prefix(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'/'))
}
