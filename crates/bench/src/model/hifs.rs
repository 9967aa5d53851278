//! HIFS itself, in any layout, on the disk model: the real code, with real commits and journal.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use anyhow::{Context, Result};
use tacita_block::{DiskModel, Geometry, MemoryDevice};
use tacita_hifs::geometry::{Ids, Layout, Parameters, Table, Times};
use tacita_hifs::{Hifs, OpenOptions, RootOwner, format};
use tacita_vfs::{FileSystem, FileType, Link, NewNode, NodeId, Stamps, Timestamp};

use super::{FileNo, Modelled, Moves};
use crate::harness::content::Stream;

const BLOCK_LEN_BYTES: u32 = 4096;

/// Longest single request in bytes, as FUSE has it.
const REQUEST_LEN_MAX: u64 = 1 << 20;

/// The layouts, by the names of the real mounts.
const LAYOUTS: [(&str, Layout); 4] = [
    ("tacita-a", Layout::A),
    ("tacita-b", Layout::B),
    ("tacita-c", Layout::C),
    ("tacita-d", Layout::D),
];

/// A HIFS image on a modelled disk.
pub(super) struct ModelledHifs {
    name: &'static str,
    disk: Arc<DiskModel<MemoryDevice>>,
    hifs: Hifs,
    files: BTreeMap<FileNo, (NodeId, u64)>,
    random: Stream,
    buf: Vec<u8>,
}

/// Every layout on a disk of `size_bytes`.
pub(super) fn layouts(size_bytes: u64) -> Result<Vec<ModelledHifs>> {
    LAYOUTS.into_iter().map(|(name, layout)| ModelledHifs::new(name, layout, size_bytes)).collect()
}

impl ModelledHifs {
    fn new(name: &'static str, layout: Layout, size_bytes: u64) -> Result<Self> {
        let geometry = Geometry::within(size_bytes, BLOCK_LEN_BYTES)?;
        let disk = Arc::new(DiskModel::new(MemoryDevice::new(geometry)));
        let parameters = Parameters {
            len_bytes: size_bytes,
            layout,
            ids: Ids::Path,
            times: Times::None,
            bucket_len_bytes: None,
            groups: None,
            seed: [7; 32],
        };
        format(disk.clone(), &parameters, RootOwner::default(), &mut |_, _| {})?;
        let hifs = Hifs::open(disk.clone(), OpenOptions::default())?;
        let buf = vec![0; usize::try_from(REQUEST_LEN_MAX)?];
        Ok(Self { name, disk, hifs, files: BTreeMap::new(), random: Stream::new(3), buf })
    }

    fn node(&mut self, file: FileNo) -> Result<(NodeId, u64)> {
        if let Some(known) = self.files.get(&file) {
            return Ok(*known);
        }
        let new = NewNode {
            kind: FileType::File,
            perm: 0o644,
            uid: 1000,
            gid: 1000,
            rdev: 0,
            target: OsString::new(),
            now: Timestamp::default(),
        };
        let name = OsString::from(format!("file-{}", file.0));
        let (node, _) = self.hifs.create(self.hifs.root(), &name, &new)?;
        self.files.insert(file, (node, 0));
        Ok((node, 0))
    }

    fn write(&mut self, node: NodeId, offset: u64, len_bytes: u64) -> Result<()> {
        let mut done = 0;
        while done < len_bytes {
            let now = usize::try_from((len_bytes - done).min(REQUEST_LEN_MAX))?;
            // HIFS stores no zeros, and compares what it overwrites: content has to be real.
            self.random.fill(&mut self.buf[..now]);
            self.hifs.write(node, offset + done, &self.buf[..now], Stamps::NONE)?;
            done += now as u64;
        }
        Ok(())
    }
}

impl Modelled for ModelledHifs {
    fn name(&self) -> &str {
        self.name
    }

    fn capacity_bytes(&self) -> u64 {
        let geometry = self.hifs.superblock().geometry;
        geometry.cells_max(Table::Buckets) * geometry.bucket_len_bytes()
    }

    fn append(&mut self, file: FileNo, len_bytes: u64) -> Result<()> {
        let (node, size) = self.node(file)?;
        self.write(node, size, len_bytes)?;
        self.files.insert(file, (node, size + len_bytes));
        Ok(())
    }

    fn read(&mut self, file: FileNo, offset: u64, len_bytes: u64) -> Result<()> {
        let (node, _) = self.node(file)?;
        let mut done = 0;
        while done < len_bytes {
            let now = usize::try_from((len_bytes - done).min(REQUEST_LEN_MAX))?;
            self.hifs.read(node, offset + done, &mut self.buf[..now])?;
            done += now as u64;
        }
        Ok(())
    }

    fn overwrite(&mut self, file: FileNo, offset: u64, len_bytes: u64) -> Result<()> {
        let (node, _) = self.node(file)?;
        self.write(node, offset, len_bytes)
    }

    fn delete(&mut self, file: FileNo) -> Result<()> {
        let (node, _) = self.files.remove(&file).context("the file is there")?;
        let name = OsString::from(format!("file-{}", file.0));
        let link = Link { dir: self.hifs.root(), name: &name, node };
        self.hifs.remove(link, Timestamp::default())?;
        self.hifs.forget(node);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        Ok(self.hifs.sync()?)
    }

    fn elapsed_ns(&self) -> u64 {
        self.disk.elapsed_ns()
    }

    fn moves(&self) -> Option<Moves> {
        let work = self.hifs.cost().buckets;
        Some(Moves { written: work.fresh, copied: work.copied })
    }
}
