//! The data of an option, taken apart from the front.

use super::Refusal;
use crate::protocol::{REP_ERR_INVALID, STRING_LEN_MAX_BYTES};

pub(super) struct Fields<'d> {
    rest: &'d [u8],
}

const SHORT: Refusal = Refusal(REP_ERR_INVALID);

impl<'d> Fields<'d> {
    pub(super) const fn new(data: &'d [u8]) -> Self {
        Self { rest: data }
    }

    pub(super) fn u16(&mut self) -> Result<u16, Refusal> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
        self.rest = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Refusal> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// A length and so many bytes of UTF-8.
    pub(super) fn string(&mut self) -> Result<&'d str, Refusal> {
        let len = usize::try_from(self.u32()?).map_err(|_| SHORT)?;
        if len > STRING_LEN_MAX_BYTES {
            return Err(SHORT);
        }
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(SHORT)?;
        self.rest = rest;
        str::from_utf8(bytes).map_err(|_| SHORT)
    }

    /// Nothing follows.
    pub(super) fn end(&self) -> Result<(), Refusal> {
        if self.rest.is_empty() { Ok(()) } else { Err(SHORT) }
    }
}
