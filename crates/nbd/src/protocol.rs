//! The numbers of the protocol, as its specification has them; all are big-endian on the wire.

/// First eight bytes of a server: `NBDMAGIC`.
pub const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes of a server, and first of every option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Starts the reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag: what follows is the fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag: the zeros after the answer to [`OPT_EXPORT_NAME`] may be left out.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// Option: choose an export and begin, without a way to refuse.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: end.
pub const OPT_ABORT: u32 = 2;
/// Option: which exports there are.
pub const OPT_LIST: u32 = 3;
/// Option: what an export is like.
pub const OPT_INFO: u32 = 6;
/// Option: the same, and begin.
pub const OPT_GO: u32 = 7;
/// Option: replies by chunks.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: which kinds of extents there are.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: choose kinds of extents.
pub const OPT_SET_META_CONTEXT: u32 = 10;

/// Option reply: done.
pub const REP_ACK: u32 = 1;
/// Option reply: an export.
pub const REP_SERVER: u32 = 2;
/// Option reply: a fact of an export.
pub const REP_INFO: u32 = 3;
/// Option reply: a kind of extents.
pub const REP_META_CONTEXT: u32 = 4;
/// Option reply: no such option here.
pub const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
/// Option reply: the data of the option make no sense.
pub const REP_ERR_INVALID: u32 = (1 << 31) + 3;
/// Option reply: no such export.
pub const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
/// Option reply: the option is too long.
pub const REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;

/// Fact: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Fact: the name.
pub const INFO_NAME: u16 = 1;
/// Fact: sizes of requests.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flag: the flags mean something.
pub const FLAG_HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: nothing can be written.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// Transmission flag: [`CMD_FLUSH`] is served.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: [`CMD_FLAG_FUA`] is served.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// Transmission flag: [`CMD_TRIM`] is served.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: [`CMD_WRITE_ZEROES`] is served.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: [`CMD_FLAG_DF`] is served.
pub const FLAG_SEND_DF: u16 = 1 << 7;
/// Transmission flag: a flush holds for all connections.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag: [`CMD_FLAG_FAST_ZERO`] is understood.
pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write.
pub const CMD_WRITE: u16 = 1;
/// Command: end.
pub const CMD_DISC: u16 = 2;
/// Command: what was written is to be durable.
pub const CMD_FLUSH: u16 = 3;
/// Command: content is needed no more.
pub const CMD_TRIM: u16 = 4;
/// Command: zeros.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Command: extents.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Command flag: durable before the reply.
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// Command flag: zeros without holes.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flag: all of a read in one chunk.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// Command flag: one extent only.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Command flag: zeros only if that is faster than writing them.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

/// Chunk flag: the last one of a reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;
/// Chunk: nothing.
pub const REPLY_TYPE_NONE: u16 = 0;
/// Chunk: what was read.
pub const REPLY_TYPE_OFFSET_DATA: u16 = 1;
/// Chunk: extents.
pub const REPLY_TYPE_BLOCK_STATUS: u16 = 5;
/// Chunk: an error.
pub const REPLY_TYPE_ERROR: u16 = (1 << 15) + 1;

/// Extent flag of `base:allocation`: takes no room.
pub const STATE_HOLE: u32 = 1 << 0;
/// Extent flag of `base:allocation`: reads as zeros.
pub const STATE_ZERO: u32 = 1 << 1;

/// The one kind of extents.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number in replies.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// Longest string of the protocol in bytes.
pub const STRING_LEN_MAX_BYTES: usize = 4096;
/// Smallest request in bytes, as told to clients.
pub const BLOCK_LEN_MIN_BYTES: u32 = 1;
/// Length and alignment in bytes that requests best have, as told to clients.
pub const BLOCK_LEN_PREFERRED_BYTES: u32 = 4096;
/// Longest payload of a request or reply in bytes, as told to clients.
pub const PAYLOAD_LEN_MAX_BYTES: u32 = 32 << 20;

/// Error numbers of the protocol, which are those of Linux wherever the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: the export is read-only.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// The request makes no sense.
    Inval = 22,
    /// No room, or beyond the end.
    NoSpc = 28,
    /// Not to be had.
    NotSup = 95,
    /// The server is about to end.
    Shutdown = 108,
}
