//! Replies to requests, as bytes added to what is about to be sent. Pure: no input, no output.

use crate::protocol::{
    BASE_ALLOCATION_ID, Errno, REPLY_FLAG_DONE, REPLY_TYPE_BLOCK_STATUS, REPLY_TYPE_ERROR,
    REPLY_TYPE_OFFSET_DATA, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, STRUCTURED_REPLY_MAGIC,
};
use crate::request::Cookie;
use tacita_block::{Allocation, ByteExtent};

/// Length in bytes of the longest head that goes before what was read.
pub const READ_HEAD_LEN_MAX_BYTES: usize = 28;

/// A simple reply without content: done, or an error.
pub fn push_simple(out: &mut Vec<u8>, cookie: Cookie, result: Result<(), Errno>) {
    out.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    out.extend(result.map_or_else(|e| e as u32, |()| 0).to_be_bytes());
    out.extend(cookie.0.to_be_bytes());
}

/// What goes before `len_bytes` that were read at `offset`.
pub fn push_read_head(
    out: &mut Vec<u8>,
    structured: bool,
    cookie: Cookie,
    offset: u64,
    len_bytes: u32,
) {
    if structured {
        push_chunk_head(out, cookie, REPLY_TYPE_OFFSET_DATA, 8 + len_bytes);
        out.extend(offset.to_be_bytes());
    } else {
        push_simple(out, cookie, Ok(()));
    }
}

/// A read that failed.
pub fn push_read_error(out: &mut Vec<u8>, structured: bool, cookie: Cookie, errno: Errno) {
    if structured {
        // Number, and a text of no length.
        push_chunk_head(out, cookie, REPLY_TYPE_ERROR, 6);
        out.extend((errno as u32).to_be_bytes());
        out.extend(0_u16.to_be_bytes());
    } else {
        push_simple(out, cookie, Err(errno));
    }
}

/// Extents from the start of what was asked.
pub fn push_extents(out: &mut Vec<u8>, cookie: Cookie, extents: &[ByteExtent]) {
    let len = u32::try_from(4 + 8 * extents.len()).expect("extents are limited in number");
    push_chunk_head(out, cookie, REPLY_TYPE_BLOCK_STATUS, len);
    out.extend(BASE_ALLOCATION_ID.to_be_bytes());
    for extent in extents {
        let len = u32::try_from(extent.len_bytes).expect("within what was asked, which is less");
        let state = match extent.allocation {
            Allocation::Data => 0,
            Allocation::Hole => STATE_HOLE | STATE_ZERO,
        };
        out.extend(len.to_be_bytes());
        out.extend(state.to_be_bytes());
    }
}

/// Head of the only chunk of a structured reply.
fn push_chunk_head(out: &mut Vec<u8>, cookie: Cookie, kind: u16, len_bytes: u32) {
    out.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    out.extend(REPLY_FLAG_DONE.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(cookie.0.to_be_bytes());
    out.extend(len_bytes.to_be_bytes());
}
