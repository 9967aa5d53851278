//! Nodes that are read: found in the index, read as they lie, and opened.

use std::ops::Range;
use std::sync::PoisonError;

use tacita_dnefs_format::checkpoint::Location;
use tacita_dnefs_format::node::{self, Header, Opened};
use tacita_dnefs_format::record::IndexKey;
use tacita_dnefs_format::{Malformed, NODE_ALIGN};
use tacita_flash::{Leb, Volume};
use tacita_secret::{MessageKey, Traces};

use super::{Core, Store};
use crate::error::{Error, Kind, Result, damaged};

/// Nodes that are read in one go: as much as a large request wants.
const READ_NODES: usize = 64;

/// A node that is about to be read.
#[derive(Debug)]
struct Wanted {
    at: IndexKey,
    location: Location,
    key: MessageKey,
    /// What was found in memory already.
    bytes: Vec<u8>,
}

impl Wanted {
    /// Whether `next` lies right behind this one on the medium.
    fn is_followed_by(&self, next: &Self) -> bool {
        let end = self.location.offset + self.location.len_bytes.next_multiple_of(NODE_ALIGN);
        self.bytes.is_empty()
            && next.bytes.is_empty()
            && self.location.leb == next.location.leb
            && end == next.location.offset
    }
}

impl Store {
    /// The content of a node, if there is one.
    pub(crate) fn get(&self, at: IndexKey) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        let end = IndexKey { sub: at.sub + 1, ..at };
        let most = self.layout.leb_len_bytes as usize;
        self.read(at..end, |_, opened| {
            found = Some(opened.payload(most)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Opens all nodes of a range, in order. That the volume cannot be read is said once: programs are told
    /// a number only.
    pub(crate) fn read(
        &self,
        range: Range<IndexKey>,
        each: impl FnMut(IndexKey, &Opened<'_>) -> std::result::Result<(), Malformed>,
    ) -> Result<()> {
        self.read_range(range, each).inspect_err(|e| {
            if e.device().is_some() {
                self.unread.call_once(|| {
                    log::error!(
                        "{}: what lies there cannot be read: see to what the volume lies on, and \
                         look what is lost with `tacita dnefs check`",
                        e.cause()
                    );
                });
            }
        })
    }

    fn read_range(
        &self,
        range: Range<IndexKey>,
        mut each: impl FnMut(IndexKey, &Opened<'_>) -> std::result::Result<(), Malformed>,
    ) -> Result<()> {
        let mut start = range.start;
        loop {
            let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
            let mut wanted = self.core().locate(&*self.volume, start..range.end)?;
            let Some(last) = wanted.last() else { return Ok(()) };
            start = IndexKey { sub: last.at.sub + 1, ..last.at };
            let is_last = wanted.len() < READ_NODES;
            let runs = wanted.chunk_by_mut(Wanted::is_followed_by);
            let runs: Vec<_> = runs.map(|run| self.read_run(run)).collect::<Result<_>>()?;
            drop(blocks);
            let mut traces = Traces::new();
            for (run, mut bytes) in runs {
                let start = run[0].location.offset;
                for node in run {
                    let Location { offset, len_bytes, .. } = node.location;
                    let bytes = &mut bytes[(offset - start) as usize..][..len_bytes as usize];
                    self.open(node, bytes, &mut traces, &mut each)?;
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Nodes that lie one after the other, and what stands there.
    fn read_run<'w>(&self, run: &'w mut [Wanted]) -> Result<(&'w [Wanted], Vec<u8>)> {
        let (first, last) = (run[0].location, run[run.len() - 1].location);
        let mut bytes = std::mem::take(&mut run[0].bytes);
        if bytes.is_empty() {
            bytes.resize((last.offset + last.len_bytes - first.offset) as usize, 0);
            self.volume.read(Leb(self.layout.main_leb(first.leb)), first.offset, &mut bytes)?;
        }
        Ok((run, bytes))
    }

    fn open(
        &self,
        node: &Wanted,
        bytes: &mut [u8],
        traces: &mut Traces,
        each: &mut impl FnMut(IndexKey, &Opened<'_>) -> std::result::Result<(), Malformed>,
    ) -> Result<()> {
        let what = |at: Location| {
            format!("the node at {} of erase block {}", at.offset, self.layout.main_leb(at.leb))
        };
        let location = node.location;
        let damage = |malformed| damaged(what(location))(malformed);
        let gone = Malformed("nothing is there");
        let header = Header::parse(bytes).and_then(|header| header.ok_or(gone)).map_err(damage)?;
        let authenticates = self.parameters.cipher.authenticates();
        let opened = node::open_unchecked(bytes, &header, &node.key, traces, authenticates)
            .map_err(damage)?;
        if opened.at != node.at {
            return Err(Error::new(Kind::Damaged, format!("{}: it is another's", what(location))));
        }
        each(node.at, &opened).map_err(damage)
    }
}

impl Core {
    /// Nodes of a range, as many as are read in one go.
    fn locate(&mut self, volume: &dyn Volume, range: Range<IndexKey>) -> Result<Vec<Wanted>> {
        let found: Vec<_> = self.index.range(range).take(READ_NODES).collect();
        found
            .into_iter()
            .map(|(at, key)| {
                let location = self.keys.location(key);
                Ok(Wanted {
                    at,
                    location,
                    key: self.keys.for_opening(volume, key)?,
                    bytes: self.log.in_memory(location).map(<[u8]>::to_vec).unwrap_or_default(),
                })
            })
            .collect()
    }
}
