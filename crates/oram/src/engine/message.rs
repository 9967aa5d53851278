//! The bytes of messages between an engine and its users: pure. docs/spec/oram-engine.md.
//!
//! All requests of a store have one length, and so have all answers, whatever is asked and found.

use bytes::Bytes;

use crate::client::{Progress, Status};
use crate::error::{Error, Kind, Result};
use crate::geometry::{Generation, Geometry};
use crate::keys::Id;
use crate::log_view::Outcome;
use crate::record::Operation;
use crate::root::{Root, TAG_LEN, TAGGED_LEN};

/// Version of the protocol.
pub const VERSION: u16 = 1;
/// Bytes of a hello.
pub const HELLO_LEN: usize = 24;
/// Bytes of a welcome.
pub const WELCOME_LEN: usize = 8 + 8 + TAGGED_LEN;
/// Bytes of a request before its block.
const REQUEST_LEN: usize = 8 + 8 + 8 + 8 + 32 + 32;
/// Bytes of an answer before its block.
const ANSWER_LEN: usize = 8 + 8 + 8;
/// Bytes of a build's progress.
const BUILD_LEN: usize = 1 + 8 + 8 + 8;
/// Builds that a status tells of.
const BUILDS_MAX: usize = 19;

/// Of requests that are no operation; operations have the codes of records.
const STATUS: u8 = 0;

const STATUS_IS: u8 = 0;
const WAS_ABSENT: u8 = 1;
const WAS: u8 = 2;
const WRITTEN_ABSENT: u8 = 3;
const WRITTEN: u8 = 4;
const NOT_WRITTEN_ABSENT: u8 = 5;
const NOT_WRITTEN: u8 = 6;
const FULL: u8 = 7;
const FAILED: u8 = 128;

/// Whose requests these are: the same behind a connection that was lost.
pub type SessionId = [u8; 16];

/// What a user asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// How the store is.
    Status,
    /// One query.
    Query(Id, Operation),
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its number in the session, from 1 on.
    pub number: u64,
    /// All answers to requests below this number have come.
    pub received: u64,
    /// If it was sent before, on a connection that was lost: then the log had so many records at least.
    pub asked_since: Option<u64>,
    /// What is asked.
    pub asked: Asked,
}

/// What an engine answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// To [`Asked::Status`].
    Status(Status),
    /// What the query told.
    Outcome(Outcome),
    /// What kept it from being done.
    Failed(Kind, String),
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Number of the request.
    pub number: u64,
    /// Records in the log so far: what a status tells, too.
    pub records: u64,
    /// What is answered.
    pub told: Told,
}

/// The first message of a user.
pub fn hello(session: &SessionId) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    bytes[..2].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..].copy_from_slice(session);
    bytes
}

/// The session of a hello.
///
/// # Errors
/// [`Kind::Protocol`].
pub fn open_hello(bytes: &[u8]) -> Result<SessionId> {
    let session = bytes.get(8..).and_then(|rest| rest.try_into().ok()).ok_or_else(malformed)?;
    if bytes != hello(&session) {
        return Err(Error::new(Kind::Protocol, "it speaks another version"));
    }
    Ok(session)
}

/// The first message of an engine: the store whose blocks it has, and how many records its log has.
pub fn welcome(root: &Root, records: u64) -> [u8; WELCOME_LEN] {
    let mut bytes = [0; WELCOME_LEN];
    bytes[..2].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..16].copy_from_slice(&records.to_le_bytes());
    bytes[16..].copy_from_slice(&root.tagged());
    bytes
}

/// The store of a welcome, and the records of its log.
///
/// # Errors
/// [`Kind::Protocol`].
pub fn open_welcome(bytes: &[u8]) -> Result<(Root, u64)> {
    let tagged = bytes.get(16..).ok_or_else(malformed)?;
    let records = u64::from_le_bytes(field(bytes, 8));
    let (root, _) = Root::decode(&[tagged, &[0; TAG_LEN]].concat()).map_err(|_| malformed())?;
    if bytes != welcome(&root, records) {
        return Err(Error::new(Kind::Protocol, "it speaks another version"));
    }
    Ok((root, records))
}

/// Bytes of each request to a store of these shapes.
pub const fn request_len(geometry: &Geometry) -> usize {
    REQUEST_LEN + geometry.block_len()
}

/// Bytes of each answer of a store of these shapes.
pub const fn answer_len(geometry: &Geometry) -> usize {
    ANSWER_LEN + geometry.block_len()
}

impl Request {
    /// The request's bytes.
    pub fn encode(&self, geometry: &Geometry) -> Vec<u8> {
        let mut bytes = vec![0; request_len(geometry)];
        let (code, id, expected, block) = match &self.asked {
            Asked::Status => (STATUS, None, None, None),
            Asked::Query(id, operation) => {
                let (code, expected, block) = operation.parts();
                (code, Some(id), expected, block)
            }
        };
        bytes[0] = code;
        bytes[1] = u8::from(self.asked_since.is_some());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.received.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.asked_since.unwrap_or_default().to_le_bytes());
        bytes[32..64].copy_from_slice(id.unwrap_or(&Id::default()));
        bytes[64..96].copy_from_slice(&expected.unwrap_or_default());
        if let Some(block) = block {
            bytes[REQUEST_LEN..].copy_from_slice(block);
        }
        bytes
    }

    /// The request in `bytes`, which are [`request_len`].
    ///
    /// # Errors
    /// [`Kind::Protocol`] for everything that [`Request::encode`] does not make.
    pub fn decode(geometry: &Geometry, bytes: &Bytes) -> Result<Self> {
        if bytes.len() != request_len(geometry) {
            return Err(malformed());
        }
        let block = || bytes.slice(REQUEST_LEN..);
        let id: Id = field(bytes, 32);
        let asked = if bytes[0] == STATUS {
            Asked::Status
        } else {
            let operation = Operation::of_parts(bytes[0], field(bytes, 64), block);
            Asked::Query(id, operation.ok_or_else(malformed)?)
        };
        let request = Self {
            number: u64::from_le_bytes(field(bytes, 8)),
            received: u64::from_le_bytes(field(bytes, 16)),
            asked_since: (bytes[1] == 1).then(|| u64::from_le_bytes(field(bytes, 24))),
            asked,
        };
        if request.number == 0 || request.encode(geometry) != *bytes {
            return Err(malformed());
        }
        Ok(request)
    }
}

impl Answer {
    /// The answer's bytes.
    pub fn encode(&self, geometry: &Geometry) -> Vec<u8> {
        let mut bytes = vec![0; answer_len(geometry)];
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.records.to_le_bytes());
        let (head, rest) = bytes.split_at_mut(ANSWER_LEN);
        let mut put = |block: &Option<Bytes>, codes: [u8; 2]| {
            if let Some(block) = block {
                rest.copy_from_slice(block);
            }
            codes[usize::from(block.is_some())]
        };
        head[0] = match &self.told {
            Told::Outcome(Outcome::Was(was)) => put(was, [WAS_ABSENT, WAS]),
            Told::Outcome(Outcome::Compared { written: true, was }) => {
                put(was, [WRITTEN_ABSENT, WRITTEN])
            }
            Told::Outcome(Outcome::Compared { written: false, was }) => {
                put(was, [NOT_WRITTEN_ABSENT, NOT_WRITTEN])
            }
            Told::Outcome(Outcome::Full) => FULL,
            Told::Outcome(Outcome::Void) => FAILED + code_of(Kind::Protocol),
            Told::Failed(kind, text) => {
                let text = &text.as_bytes()[..text.floor_char_boundary(rest.len().min(255))];
                head[1] = u8::try_from(text.len()).expect("at most 255");
                rest[..text.len()].copy_from_slice(text);
                FAILED + code_of(*kind)
            }
            Told::Status(status) => {
                rest[..8].copy_from_slice(&status.present.to_le_bytes());
                let builds = status.builds.iter().take(BUILDS_MAX);
                head[1] = u8::try_from(builds.len()).expect("at most that many");
                for (place, build) in rest[8..].chunks_mut(BUILD_LEN).zip(builds) {
                    place[0] = build.generation.level;
                    place[1..9].copy_from_slice(&build.generation.number.to_le_bytes());
                    place[9..17].copy_from_slice(&build.reported.to_le_bytes());
                    place[17..25].copy_from_slice(&build.enforced.to_le_bytes());
                }
                STATUS_IS
            }
        };
        bytes
    }

    /// The answer in `bytes`, which are [`answer_len`].
    ///
    /// # Errors
    /// [`Kind::Protocol`] for everything that [`Answer::encode`] does not make.
    pub fn decode(geometry: &Geometry, bytes: &Bytes) -> Result<Self> {
        if bytes.len() != answer_len(geometry) {
            return Err(malformed());
        }
        let block = || Some(bytes.slice(ANSWER_LEN..));
        let was = |was| Told::Outcome(Outcome::Was(was));
        let compared = |written, was| Told::Outcome(Outcome::Compared { written, was });
        let told = match bytes[0] {
            STATUS_IS => Told::Status(status(bytes)?),
            WAS_ABSENT => was(None),
            WAS => was(block()),
            WRITTEN_ABSENT => compared(true, None),
            WRITTEN => compared(true, block()),
            NOT_WRITTEN_ABSENT => compared(false, None),
            NOT_WRITTEN => compared(false, block()),
            FULL => Told::Outcome(Outcome::Full),
            code => {
                let kind = code.checked_sub(FAILED).and_then(kind_of).ok_or_else(malformed)?;
                let text = &bytes[ANSWER_LEN..][..usize::from(bytes[1])];
                let text = std::str::from_utf8(text).map_err(|_| malformed())?;
                Told::Failed(kind, text.to_owned())
            }
        };
        let records = u64::from_le_bytes(field(bytes, 16));
        let answer = Self { number: u64::from_le_bytes(field(bytes, 8)), records, told };
        if answer.encode(geometry) != *bytes {
            return Err(malformed());
        }
        Ok(answer)
    }
}

fn status(bytes: &Bytes) -> Result<Status> {
    let count = usize::from(bytes[1]);
    if count > BUILDS_MAX {
        return Err(malformed());
    }
    let builds = bytes[ANSWER_LEN + 8..].chunks(BUILD_LEN).take(count);
    let builds = builds.map(|place| Progress {
        generation: Generation { level: place[0], number: u64::from_le_bytes(field(place, 1)) },
        reported: f64::from_le_bytes(field(place, 9)),
        enforced: f64::from_le_bytes(field(place, 17)),
    });
    Ok(Status {
        queries: u64::from_le_bytes(field(bytes, 16)),
        present: u64::from_le_bytes(field(bytes, ANSWER_LEN)),
        builds: builds.collect(),
    })
}

/// By their codes.
const KINDS: [Kind; 12] = [
    Kind::Parameters,
    Kind::NotAStore,
    Kind::WrongKey,
    Kind::Hostile,
    Kind::RolledBack,
    Kind::NoSpace,
    Kind::Busy,
    Kind::Storage,
    Kind::Unreachable,
    Kind::Protocol,
    Kind::Poisoned,
    Kind::Anchor,
];

fn code_of(kind: Kind) -> u8 {
    match kind {
        Kind::Parameters => 0,
        Kind::NotAStore => 1,
        Kind::WrongKey => 2,
        Kind::Hostile => 3,
        Kind::RolledBack => 4,
        Kind::NoSpace => 5,
        Kind::Busy => 6,
        // What only who starts an engine, or makes a key, meets has no code of its own.
        Kind::Storage | Kind::Memory | Kind::Address | Kind::Taken | Kind::Exists => 7,
        // It is the engine that does not reach its server; the text says why.
        Kind::Unreachable | Kind::Untrusted => 8,
        Kind::Protocol => 9,
        Kind::Poisoned => 10,
        Kind::Anchor => 11,
    }
}

fn kind_of(code: u8) -> Option<Kind> {
    KINDS.get(usize::from(code)).copied()
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as long as it is")
}

fn malformed() -> Error {
    Error::new(Kind::Protocol, "what came is not what the protocol of engines allows")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_has_a_code() {
        for (code, kind) in (0..).zip(KINDS) {
            assert_eq!((code_of(kind), kind_of(code)), (code, Some(kind)));
        }
        assert_eq!(code_of(Kind::Anchor), 11, "a damaged anchor is told as one");
        for kind in [Kind::Memory, Kind::Address, Kind::Exists] {
            assert_eq!(kind_of(code_of(kind)), Some(Kind::Storage));
        }
    }

    fn geometry() -> Geometry {
        Geometry::new(512, 16, 2, 100).unwrap()
    }

    fn block() -> impl Strategy<Value = Bytes> {
        any::<u8>().prop_map(|byte| Bytes::from(vec![byte; 512]))
    }

    fn asked() -> impl Strategy<Value = Asked> {
        let operation = prop_oneof![
            Just(Operation::Read),
            block().prop_map(Operation::Write),
            Just(Operation::Free),
            (any::<Option<[u8; 32]>>(), block())
                .prop_map(|(expected, new)| Operation::CompareAndWrite { expected, new }),
            Just(Operation::Dummy),
        ];
        prop_oneof![
            Just(Asked::Status),
            (any::<Id>(), operation).prop_map(|(id, operation)| Asked::Query(id, operation)),
        ]
    }

    fn told() -> impl Strategy<Value = Told> {
        let was = || proptest::option::of(block());
        let build = (any::<u8>(), any::<u64>(), 0_f64..1.0, 0_f64..1.0).prop_map(
            |(level, number, reported, enforced)| Progress {
                generation: Generation { level, number },
                reported,
                enforced,
            },
        );
        let status = (any::<u64>(), any::<u64>(), proptest::collection::vec(build, 0..BUILDS_MAX));
        prop_oneof![
            was().prop_map(|was| Told::Outcome(Outcome::Was(was))),
            (any::<bool>(), was())
                .prop_map(|(written, was)| Told::Outcome(Outcome::Compared { written, was })),
            Just(Told::Outcome(Outcome::Full)),
            (0..KINDS.len(), "[a-z\u{e4}\u{f6} ]{0,60}")
                .prop_map(|(kind, text)| Told::Failed(KINDS[kind], text)),
            status.prop_map(|(queries, present, builds)| {
                Told::Status(Status { queries, present, builds })
            }),
        ]
    }

    proptest! {
        #[test]
        fn requests_come_back(number in 1_u64.., received: u64, asked_since: Option<u64>, asked in asked()) {
            let request = Request { number, received, asked_since, asked };
            let bytes = Bytes::from(request.encode(&geometry()));
            prop_assert_eq!(bytes.len(), request_len(&geometry()));
            prop_assert_eq!(Request::decode(&geometry(), &bytes).unwrap(), request);
        }

        #[test]
        fn answers_come_back(number: u64, told in told()) {
            let records = match &told {
                Told::Status(status) => status.queries,
                _ => number / 2,
            };
            let answer = Answer { number, records, told };
            let bytes = Bytes::from(answer.encode(&geometry()));
            prop_assert_eq!(bytes.len(), answer_len(&geometry()));
            prop_assert_eq!(Answer::decode(&geometry(), &bytes).unwrap(), answer);
        }

        #[test]
        fn anything_else_is_refused_or_says_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let bytes = Bytes::from(bytes);
            if let Ok(request) = Request::decode(&geometry(), &bytes) {
                prop_assert_eq!(Bytes::from(request.encode(&geometry())), bytes.clone());
            }
            if let Ok(answer) = Answer::decode(&geometry(), &bytes) {
                prop_assert_eq!(Bytes::from(answer.encode(&geometry())), bytes);
            }
        }
    }

    #[test]
    fn greetings_come_back() {
        let root = Root { geometry: geometry(), store_id: [3; 16], fence: 9, group: [0; 16] };
        assert_eq!(open_welcome(&welcome(&root, 77)).unwrap(), (root, 77));
        assert_eq!(open_hello(&hello(&[4; 16])).unwrap(), [4; 16]);
        for len in 0..HELLO_LEN {
            open_hello(&hello(&[4; 16])[..len]).unwrap_err();
        }
        let mut other = hello(&[4; 16]);
        other[0] = 2;
        open_hello(&other).unwrap_err();
    }

    #[test]
    fn long_failures_are_cut_between_letters() {
        let told = Told::Failed(Kind::Storage, "\u{e4}".repeat(400));
        let bytes = Bytes::from(Answer { number: 1, records: 7, told }.encode(&geometry()));
        let Told::Failed(_, text) = Answer::decode(&geometry(), &bytes).unwrap().told else {
            panic!("another answer");
        };
        assert_eq!(text, "\u{e4}".repeat(127));
    }
}
