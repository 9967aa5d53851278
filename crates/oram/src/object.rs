//! Names of everything that a store keeps.

use std::fmt;

use crate::geometry::Generation;

/// Bytes of a name on the wire.
pub const OBJECT_LEN: usize = 16;

/// A name of bytes that are written once and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// Records of the query log from a sequence number on, as many as the server wrote at once.
    Log {
        /// The first.
        first: u64,
    },
    /// All results of a period.
    Results {
        /// Which period.
        period: u64,
    },
    /// What opens a period: which generations its queries ask.
    Manifest {
        /// Which period.
        period: u64,
    },
    /// Items of a generation, sorted by label.
    Items {
        /// Which generation.
        generation: Generation,
        /// Which bucket.
        bucket: u32,
    },
    /// Pages of a generation's filter.
    Filter {
        /// Which generation.
        generation: Generation,
        /// Which of its objects.
        part: u32,
    },
    /// Between the two passes of a build: what a chunk of the inputs gives to each bucket.
    Cells {
        /// What is built.
        generation: Generation,
        /// Which chunk.
        chunk: u32,
    },
    /// Between the passes of a build: what a bucket gives to the filter.
    Entries {
        /// What is built.
        generation: Generation,
        /// Which bucket.
        bucket: u32,
    },
}

impl Object {
    /// The name in [`OBJECT_LEN`] bytes: kind, level, two zeros, part, number.
    pub fn encode(&self) -> [u8; OBJECT_LEN] {
        let (kind, level, part, number) = match *self {
            Self::Log { first } => (1, 0, 0, first),
            Self::Results { period } => (2, 0, 0, period),
            Self::Manifest { period } => (3, 0, 0, period),
            Self::Items { generation, bucket } => (4, generation.level, bucket, generation.number),
            Self::Filter { generation, part } => (5, generation.level, part, generation.number),
            Self::Cells { generation, chunk } => (6, generation.level, chunk, generation.number),
            Self::Entries { generation, bucket } => {
                (7, generation.level, bucket, generation.number)
            }
        };
        let mut bytes = [0; OBJECT_LEN];
        bytes[0] = kind;
        bytes[1] = level;
        bytes[4..8].copy_from_slice(&u32::to_le_bytes(part));
        bytes[8..].copy_from_slice(&u64::to_le_bytes(number));
        bytes
    }

    /// The generation that it belongs to.
    pub const fn generation(&self) -> Option<Generation> {
        match *self {
            Self::Items { generation, .. }
            | Self::Filter { generation, .. }
            | Self::Cells { generation, .. }
            | Self::Entries { generation, .. } => Some(generation),
            Self::Log { .. } | Self::Results { .. } | Self::Manifest { .. } => None,
        }
    }

    /// The name in `bytes`, if there is one.
    pub fn decode(bytes: &[u8; OBJECT_LEN]) -> Option<Self> {
        let part = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
        let number = u64::from_le_bytes(bytes[8..].try_into().expect("eight bytes"));
        let generation = Generation { level: bytes[1], number };
        let object = match bytes[0] {
            1 => Self::Log { first: number },
            2 => Self::Results { period: number },
            3 => Self::Manifest { period: number },
            4 => Self::Items { generation, bucket: part },
            5 => Self::Filter { generation, part },
            6 => Self::Cells { generation, chunk: part },
            7 => Self::Entries { generation, bucket: part },
            _ => return None,
        };
        (object.encode() == *bytes).then_some(object)
    }
}

impl std::str::FromStr for Object {
    type Err = NoName;

    /// What is displayed as `name`.
    fn from_str(name: &str) -> Result<Self, NoName> {
        let number = |text| u64::from_str_radix(text, 16).map_err(|_| NoName);
        let (folder, rest) = name.split_once('/').ok_or(NoName)?;
        let object = match folder {
            "log" => Self::Log { first: number(rest)? },
            "results" => Self::Results { period: number(rest)? },
            "manifest" => Self::Manifest { period: number(rest)? },
            "generation" => {
                let (generation, rest) = rest.split_once('/').ok_or(NoName)?;
                let (level, build) = generation.split_once('-').ok_or(NoName)?;
                let level = level.parse().map_err(|_| NoName)?;
                let generation = Generation { level, number: number(build)? };
                let (kind, part) = rest.split_once('-').ok_or(NoName)?;
                let part = u32::from_str_radix(part, 16).map_err(|_| NoName)?;
                match kind {
                    "items" => Self::Items { generation, bucket: part },
                    "filter" => Self::Filter { generation, part },
                    "cells" => Self::Cells { generation, chunk: part },
                    "entries" => Self::Entries { generation, bucket: part },
                    _ => return Err(NoName),
                }
            }
            _ => return Err(NoName),
        };
        // What is read in another way than it is written is somebody else's.
        if object.to_string() == name { Ok(object) } else { Err(NoName) }
    }
}

/// No object is called so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no object is called so")]
pub struct NoName;

/// The name as stores of blobs have it: a path of ASCII letters, digits, `-` and `/`.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log { first } => write!(f, "log/{first:016x}"),
            Self::Results { period } => write!(f, "results/{period:016x}"),
            Self::Manifest { period } => write!(f, "manifest/{period:016x}"),
            Self::Items { generation, bucket } => write!(f, "{generation}/items-{bucket:08x}"),
            Self::Filter { generation, part } => write!(f, "{generation}/filter-{part:08x}"),
            Self::Cells { generation, chunk } => write!(f, "{generation}/cells-{chunk:08x}"),
            Self::Entries { generation, bucket } => write!(f, "{generation}/entries-{bucket:08x}"),
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation/{:02}-{:016x}", self.level, self.number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_are_read_as_they_are_written(kind in 1..=7_u8, rest in any::<[u8; OBJECT_LEN - 1]>()) {
            let mut bytes = [0; OBJECT_LEN];
            bytes[0] = kind;
            bytes[8..].copy_from_slice(&rest[..8]);
            if kind > 3 {
                bytes[1] = rest[8];
                bytes[4..8].copy_from_slice(&rest[9..13]);
            }
            let object = Object::decode(&bytes).unwrap();
            prop_assert_eq!(object.to_string().parse(), Ok(object));
        }

        #[test]
        fn nothing_else_is_a_name(name in "(log|results|manifest|generation)(/[0-9a-fA-F+-]{0,20}){0,3}") {
            if let Ok(object) = name.parse::<Object>() {
                prop_assert_eq!(object.to_string(), name);
            }
        }
    }
}
