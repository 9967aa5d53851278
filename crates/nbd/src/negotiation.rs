//! What client and server settle before the first request: options and their answers. Pure: bytes
//! in, bytes out.

use crate::protocol::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, BLOCK_LEN_MIN_BYTES, BLOCK_LEN_PREFERRED_BYTES,
    FLAG_CAN_MULTI_CONN, FLAG_FIXED_NEWSTYLE, FLAG_HAS_FLAGS, FLAG_NO_ZEROES, FLAG_READ_ONLY,
    FLAG_SEND_DF, FLAG_SEND_FAST_ZERO, FLAG_SEND_FLUSH, FLAG_SEND_FUA, FLAG_SEND_TRIM,
    FLAG_SEND_WRITE_ZEROES, INFO_BLOCK_SIZE, INFO_EXPORT, INFO_NAME, OPT_ABORT, OPT_EXPORT_NAME,
    OPT_GO, OPT_INFO, OPT_LIST, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT, OPT_STRUCTURED_REPLY,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_LEN_MAX_BYTES, REP_ACK, REP_ERR_INVALID,
    REP_ERR_TOO_BIG, REP_ERR_UNKNOWN, REP_ERR_UNSUP, REP_INFO, REP_META_CONTEXT, REP_SERVER,
    SERVER_MAGIC,
};
use crate::request::Terms;

mod fields;

use fields::Fields;

/// Length of the client's flags in bytes.
pub const CLIENT_FLAGS_LEN_BYTES: usize = 4;

/// Length of an option in bytes, without its data.
pub const OPTION_HEAD_LEN_BYTES: usize = 16;

/// Longest data of an option in bytes: a name and a dozen queries, each as long as can be.
pub const OPTION_LEN_MAX_BYTES: u32 = 64 << 10;

/// Zeros after the answer to `NBD_OPT_EXPORT_NAME`.
const EXPORT_NAME_PADDING_LEN_BYTES: usize = 124;

/// What clients learn of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub len_bytes: u64,
    /// Nothing can be written.
    pub read_only: bool,
}

/// What comes after the answer to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another option.
    Option,
    /// Requests to an export, by its index.
    Requests(usize, Terms),
    /// The end.
    End,
}

/// The first bytes of a server.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&SERVER_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// The number of an option and the length of its data; `None` if it does not begin like one.
pub fn parse_option_head(bytes: &[u8; OPTION_HEAD_LEN_BYTES]) -> Option<(u32, u32)> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let (option, rest) = rest.split_first_chunk()?;
    let (len_bytes, _) = rest.split_first_chunk()?;
    (u64::from_be_bytes(*magic) == OPTION_MAGIC)
        .then(|| (u32::from_be_bytes(*option), u32::from_be_bytes(*len_bytes)))
}

/// What has been settled with one client so far.
#[derive(Debug, Clone)]
pub struct Negotiation<'e> {
    exports: &'e [Facts],
    fixed: bool,
    zeroes: bool,
    structured: bool,
    /// The export for which extents have been agreed on.
    extents: Option<usize>,
}

/// A refusal: the number of a reply to an option.
struct Refusal(u32);

impl<'e> Negotiation<'e> {
    /// Begins with the client's flags; `None` for unknown ones, which end the connection. There is
    /// at least one export.
    pub fn new(exports: &'e [Facts], client_flags: [u8; CLIENT_FLAGS_LEN_BYTES]) -> Option<Self> {
        let flags = u32::from_be_bytes(client_flags);
        let has = |flag: u16| flags & u32::from(flag) != 0;
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        (flags & !known == 0 && !exports.is_empty()).then(|| Self {
            exports,
            fixed: has(FLAG_FIXED_NEWSTYLE),
            zeroes: !has(FLAG_NO_ZEROES),
            structured: false,
            extents: None,
        })
    }

    /// Adds the answer to an option to `out`.
    pub fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        // Others have no way to be refused there, so none of them may be sent.
        if !self.fixed && option != OPT_EXPORT_NAME {
            return Next::End;
        }
        let answered = match option {
            OPT_EXPORT_NAME => return self.export_name(data, out),
            OPT_ABORT => {
                push_reply(out, option, REP_ACK, &[]);
                return Next::End;
            }
            OPT_LIST => self.list(data, out),
            OPT_STRUCTURED_REPLY => Fields::new(data).end().map(|()| self.structured = true),
            OPT_INFO | OPT_GO => match self.info(option, data, out) {
                Ok(index) if option == OPT_GO => {
                    push_reply(out, option, REP_ACK, &[]);
                    return self.requests(index);
                }
                other => other.map(drop),
            },
            OPT_LIST_META_CONTEXT => self.list_contexts(data, out),
            OPT_SET_META_CONTEXT => self.set_contexts(data, out),
            _ => Err(Refusal(REP_ERR_UNSUP)),
        };
        let number = answered.map_or_else(|Refusal(number)| number, |()| REP_ACK);
        push_reply(out, option, number, &[]);
        Next::Option
    }

    /// Adds the answer to an option whose data are too long to be looked at.
    pub fn answer_too_long(&self, option: u32, out: &mut Vec<u8>) -> Next {
        if !self.fixed || option == OPT_EXPORT_NAME {
            return Next::End;
        }
        push_reply(out, option, REP_ERR_TOO_BIG, &[]);
        Next::Option
    }

    fn requests(&self, index: usize) -> Next {
        let facts = &self.exports[index];
        let terms = Terms {
            len_bytes: facts.len_bytes,
            read_only: facts.read_only,
            structured: self.structured,
            extents: self.structured && self.extents == Some(index),
        };
        Next::Requests(index, terms)
    }

    fn export_name(&self, data: &[u8], out: &mut Vec<u8>) -> Next {
        let Some(index) = str::from_utf8(data).ok().and_then(|name| self.index_of(name)) else {
            return Next::End;
        };
        let facts = &self.exports[index];
        out.extend(facts.len_bytes.to_be_bytes());
        out.extend(self.flags_of(facts).to_be_bytes());
        if self.zeroes {
            out.extend([0; EXPORT_NAME_PADDING_LEN_BYTES]);
        }
        self.requests(index)
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        Fields::new(data).end()?;
        for export in self.exports {
            let len = u32::try_from(export.name.len()).expect("names are short");
            push_reply(out, OPT_LIST, REP_SERVER, &[&len.to_be_bytes(), export.name.as_bytes()]);
        }
        Ok(())
    }

    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<usize, Refusal> {
        let mut fields = Fields::new(data);
        let name = fields.string()?;
        let wanted = (0..fields.u16()?).map(|_| fields.u16()).collect::<Result<Vec<_>, _>>()?;
        fields.end()?;
        let index = self.index_of(name).ok_or(Refusal(REP_ERR_UNKNOWN))?;
        let facts = &self.exports[index];
        let mut push = |kind: u16, parts: [&[u8]; 3]| {
            let [a, b, c] = parts;
            push_reply(out, option, REP_INFO, &[&kind.to_be_bytes(), a, b, c]);
        };
        let flags = self.flags_of(facts).to_be_bytes();
        push(INFO_EXPORT, [&facts.len_bytes.to_be_bytes(), &flags, &[]]);
        if wanted.contains(&INFO_NAME) {
            push(INFO_NAME, [facts.name.as_bytes(), &[], &[]]);
        }
        let sizes = [BLOCK_LEN_MIN_BYTES, BLOCK_LEN_PREFERRED_BYTES, PAYLOAD_LEN_MAX_BYTES];
        let [min, preferred, max] = sizes.map(u32::to_be_bytes);
        push(INFO_BLOCK_SIZE, [&min, &preferred, &max]);
        Ok(index)
    }

    fn list_contexts(&self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let (_, queries) = self.queries(data)?;
        // Without a question all are meant; a name space alone means all in it.
        let is_asked = |query: &&str| *query == BASE_ALLOCATION || *query == "base:";
        if queries.is_empty() || queries.iter().any(is_asked) {
            // The number means nothing here.
            push_context(out, OPT_LIST_META_CONTEXT, 0);
        }
        Ok(())
    }

    fn set_contexts(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        // Whatever comes of it, what was chosen before is void.
        self.extents = None;
        let (index, queries) = self.queries(data)?;
        if queries.contains(&BASE_ALLOCATION) {
            self.extents = Some(index);
            push_context(out, OPT_SET_META_CONTEXT, BASE_ALLOCATION_ID);
        }
        Ok(())
    }

    /// An export and questions about its kinds of extents.
    fn queries<'d>(&self, data: &'d [u8]) -> Result<(usize, Vec<&'d str>), Refusal> {
        if !self.structured {
            return Err(Refusal(REP_ERR_INVALID));
        }
        let mut fields = Fields::new(data);
        let name = fields.string()?;
        let mut queries = Vec::new();
        // The count is anything that the client says; the data end sooner.
        for _ in 0..fields.u32()? {
            queries.push(fields.string()?);
        }
        fields.end()?;
        let index = self.index_of(name).ok_or(Refusal(REP_ERR_UNKNOWN))?;
        Ok((index, queries))
    }

    /// The export of that name; the empty name stands for the first.
    fn index_of(&self, name: &str) -> Option<usize> {
        let found = self.exports.iter().position(|export| export.name == name);
        found.or_else(|| name.is_empty().then_some(0))
    }

    fn flags_of(&self, facts: &Facts) -> u16 {
        let always = FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN;
        let structured = if self.structured { FLAG_SEND_DF } else { 0 };
        let writing = if facts.read_only {
            FLAG_READ_ONLY
        } else {
            FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO
        };
        always | structured | writing
    }
}

fn push_context(out: &mut Vec<u8>, option: u32, number: u32) {
    let parts: [&[u8]; 2] = [&number.to_be_bytes(), BASE_ALLOCATION.as_bytes()];
    push_reply(out, option, REP_META_CONTEXT, &parts);
}

fn push_reply(out: &mut Vec<u8>, option: u32, reply: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(reply.to_be_bytes());
    out.extend(u32::try_from(len).expect("answers are short").to_be_bytes());
    for part in parts {
        out.extend(*part);
    }
}

#[cfg(test)]
mod tests;
