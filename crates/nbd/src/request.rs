//! Requests: from 28 bytes to what is to be done, or the error number of a request that cannot be.
//! Pure: no input, no output.

use std::fmt;

use tacita_block::Kind;

use crate::protocol::{
    CMD_BLOCK_STATUS, CMD_DISC, CMD_FLAG_DF, CMD_FLAG_FAST_ZERO, CMD_FLAG_FUA, CMD_FLAG_NO_HOLE,
    CMD_FLAG_REQ_ONE, CMD_FLUSH, CMD_READ, CMD_TRIM, CMD_WRITE, CMD_WRITE_ZEROES, Errno,
    PAYLOAD_LEN_MAX_BYTES, REQUEST_MAGIC,
};

/// Length of a request in bytes, without its payload.
pub const REQUEST_LEN_BYTES: usize = 28;

/// The client's name for a request; its reply carries it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

/// A request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// `CMD_FLAG_*`.
    pub flags: u16,
    /// `CMD_*`, or anything.
    pub command: u16,
    /// The client's name for it.
    pub cookie: Cookie,
    /// First byte of the export that it is about.
    pub offset: u64,
    /// How many bytes it is about.
    pub len_bytes: u32,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read.
    Read,
    /// Write the payload.
    Write,
    /// Flush.
    Flush,
    /// Discard.
    Trim,
    /// Write zeros; real ones unless they may become a hole.
    WriteZeroes {
        /// They may.
        may_punch: bool,
    },
    /// Tell extents, or the first of them.
    BlockStatus {
        /// The first only.
        one: bool,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Trim => "trim",
            Self::WriteZeroes { .. } => "write zeroes",
            Self::BlockStatus { .. } => "block status",
        })
    }
}

/// A request that can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// What.
    pub operation: Operation,
    /// With all that it changes durable before the reply.
    pub durable: bool,
    /// The client's name for it.
    pub cookie: Cookie,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes; within the export.
    pub len_bytes: u32,
}

/// What a request may ask for, by export and negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Size of the export in bytes.
    pub len_bytes: u64,
    /// Nothing can be written.
    pub read_only: bool,
    /// Replies by chunks have been agreed on.
    pub structured: bool,
    /// The extents of `base:allocation` have been agreed on.
    pub extents: bool,
}

impl Request {
    /// Takes 28 bytes apart; `None` if they do not begin like a request. Then nobody knows where
    /// the next one begins, and the connection is of no use any more.
    pub fn parse(bytes: &[u8; REQUEST_LEN_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (flags, rest) = rest.split_first_chunk()?;
        let (command, rest) = rest.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (len_bytes, _) = rest.split_first_chunk()?;
        (u32::from_be_bytes(*magic) == REQUEST_MAGIC).then(|| Self {
            flags: u16::from_be_bytes(*flags),
            command: u16::from_be_bytes(*command),
            cookie: Cookie(u64::from_be_bytes(*cookie)),
            offset: u64::from_be_bytes(*offset),
            len_bytes: u32::from_be_bytes(*len_bytes),
        })
    }

    /// The 28 bytes, as a client sends them.
    pub fn encode(&self) -> [u8; REQUEST_LEN_BYTES] {
        let mut bytes = [0; REQUEST_LEN_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len_bytes.to_be_bytes());
        bytes
    }

    /// Whether the client wants to end.
    pub const fn is_disconnect(&self) -> bool {
        self.command == CMD_DISC
    }

    /// Bytes that follow the request, whether it can be done or not.
    pub const fn payload_len_bytes(&self) -> u32 {
        if self.command == CMD_WRITE { self.len_bytes } else { 0 }
    }

    /// What is to be done.
    ///
    /// # Errors
    /// The number that the client gets instead.
    pub fn check(&self, terms: &Terms) -> Result<Work, Errno> {
        let operation = match self.command {
            CMD_READ => Operation::Read,
            CMD_WRITE => Operation::Write,
            CMD_FLUSH => Operation::Flush,
            CMD_TRIM => Operation::Trim,
            CMD_WRITE_ZEROES => Operation::WriteZeroes { may_punch: !self.has(CMD_FLAG_NO_HOLE) },
            CMD_BLOCK_STATUS => Operation::BlockStatus { one: self.has(CMD_FLAG_REQ_ONE) },
            _ => return Err(Errno::Inval),
        };
        if self.flags & !flags_of(operation, terms) != 0 {
            return Err(Errno::Inval);
        }
        let changes =
            matches!(operation, Operation::Write | Operation::Trim | Operation::WriteZeroes { .. });
        if changes && terms.read_only {
            return Err(Errno::Perm);
        }
        self.check_range(operation, terms)?;
        if self.has(CMD_FLAG_FAST_ZERO) {
            // No device says which zeros are faster than written ones.
            return Err(Errno::NotSup);
        }
        Ok(Work {
            operation,
            durable: changes && self.has(CMD_FLAG_FUA),
            cookie: self.cookie,
            offset: self.offset,
            len_bytes: self.len_bytes,
        })
    }

    const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn check_range(&self, operation: Operation, terms: &Terms) -> Result<(), Errno> {
        let is_within = self
            .offset
            .checked_add(u64::from(self.len_bytes))
            .is_some_and(|end| end <= terms.len_bytes);
        let has_payload = matches!(operation, Operation::Read | Operation::Write);
        match operation {
            // Offset and length of a flush are reserved: what is there is nobody's business.
            Operation::Flush => Ok(()),
            Operation::BlockStatus { .. } if !terms.extents => Err(Errno::Inval),
            _ if self.len_bytes == 0 => Err(Errno::Inval),
            _ if has_payload && self.len_bytes > PAYLOAD_LEN_MAX_BYTES => Err(Errno::Inval),
            Operation::Write | Operation::WriteZeroes { .. } if !is_within => Err(Errno::NoSpc),
            _ if !is_within => Err(Errno::Inval),
            _ => Ok(()),
        }
    }
}

/// Flags that mean something with this operation. Durability may be asked for with any.
const fn flags_of(operation: Operation, terms: &Terms) -> u16 {
    let own = match operation {
        Operation::Read if terms.structured => CMD_FLAG_DF,
        Operation::WriteZeroes { .. } => CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO,
        Operation::BlockStatus { .. } => CMD_FLAG_REQ_ONE,
        _ => 0,
    };
    own | CMD_FLAG_FUA
}

/// The number for a failure of the device.
pub const fn errno_of(kind: Kind) -> Errno {
    match kind {
        Kind::NoSpace => Errno::NoSpc,
        Kind::ReadOnly => Errno::Perm,
        Kind::OutOfRange => Errno::Inval,
        _ => Errno::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { len_bytes: 1 << 30, read_only: false, structured: true, extents: true };

    fn request(command: u16, flags: u16, offset: u64, len_bytes: u32) -> Request {
        Request { flags, command, cookie: Cookie(7), offset, len_bytes }
    }

    fn refused(request: &Request) -> Option<Errno> {
        request.check(&TERMS).err()
    }

    #[test]
    fn comes_back_from_its_bytes() {
        let request = request(CMD_WRITE, CMD_FLAG_FUA, 0x0102_0304_0506_0708, 0x0a0b_0c0d);
        assert_eq!(Request::parse(&request.encode()), Some(request));
        let mut bytes = request.encode();
        bytes[0] ^= 1;
        assert_eq!(Request::parse(&bytes), None);
    }

    #[test]
    fn what_lies_beyond_the_end_is_refused_by_kind() {
        let end = TERMS.len_bytes;
        for (offset, len) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX - 4, 5)] {
            assert_eq!(refused(&request(CMD_READ, 0, offset, len)), Some(Errno::Inval));
            assert_eq!(refused(&request(CMD_WRITE, 0, offset, len)), Some(Errno::NoSpc));
            assert_eq!(refused(&request(CMD_WRITE_ZEROES, 0, offset, len)), Some(Errno::NoSpc));
            assert_eq!(refused(&request(CMD_TRIM, 0, offset, len)), Some(Errno::Inval));
            assert_eq!(refused(&request(CMD_BLOCK_STATUS, 0, offset, len)), Some(Errno::Inval));
        }
        assert_eq!(refused(&request(CMD_READ, 0, end - 1, 1)), None);
        assert_eq!(refused(&request(CMD_FLUSH, 0, u64::MAX, 1)), None);
    }

    #[test]
    fn lengths_have_bounds() {
        let max = PAYLOAD_LEN_MAX_BYTES;
        for command in [CMD_READ, CMD_WRITE] {
            assert_eq!(refused(&request(command, 0, 0, max)), None);
            assert_eq!(refused(&request(command, 0, 0, max + 1)), Some(Errno::Inval));
            assert_eq!(refused(&request(command, 0, 0, 0)), Some(Errno::Inval));
        }
        assert_eq!(refused(&request(CMD_TRIM, 0, 0, max + 1)), None);
        assert_eq!(refused(&request(CMD_WRITE_ZEROES, 0, 0, 1 << 30)), None);
        assert_eq!(refused(&request(CMD_BLOCK_STATUS, 0, 0, 0)), Some(Errno::Inval));
    }

    #[test]
    fn flags_must_fit_the_command() {
        let bad = [
            (CMD_READ, CMD_FLAG_NO_HOLE),
            (CMD_READ, CMD_FLAG_REQ_ONE),
            (CMD_WRITE, CMD_FLAG_DF),
            (CMD_TRIM, CMD_FLAG_FAST_ZERO),
            (CMD_BLOCK_STATUS, CMD_FLAG_NO_HOLE),
            (CMD_WRITE, 1 << 15),
            (5, 0),
            (8, 0),
            (u16::MAX, 0),
        ];
        for (command, flags) in bad {
            assert_eq!(refused(&request(command, flags, 0, 512)), Some(Errno::Inval));
        }
        let plain = Terms { structured: false, extents: false, ..TERMS };
        let read = request(CMD_READ, CMD_FLAG_DF, 0, 512);
        assert!(read.check(&TERMS).is_ok());
        assert_eq!(read.check(&plain), Err(Errno::Inval));
        let status = request(CMD_BLOCK_STATUS, 0, 0, 512);
        assert_eq!(status.check(&plain), Err(Errno::Inval));
        let fast = request(CMD_WRITE_ZEROES, CMD_FLAG_FAST_ZERO, 0, 512);
        assert_eq!(refused(&fast), Some(Errno::NotSup));
    }

    #[test]
    fn what_is_read_only_stays() {
        let terms = Terms { read_only: true, ..TERMS };
        for command in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
            assert_eq!(request(command, 0, 0, 512).check(&terms), Err(Errno::Perm));
        }
        for command in [CMD_READ, CMD_FLUSH, CMD_BLOCK_STATUS] {
            assert!(request(command, 0, 0, 512).check(&terms).is_ok());
        }
    }

    #[test]
    fn durability_is_for_what_changes_something() {
        for (command, durable) in [(CMD_WRITE, true), (CMD_TRIM, true), (CMD_READ, false)] {
            let work = request(command, CMD_FLAG_FUA, 0, 512).check(&TERMS).unwrap();
            assert_eq!(work.durable, durable);
        }
    }
}
