//! Which keys are in use: those that the newest checkpoint of a dump leads to, and its own.

use std::collections::{BTreeMap, HashMap, HashSet};

use tacita_dnefs_format::checkpoint::{IndexChunk, NodeRef, Root, Table};
use tacita_dnefs_format::node;
use tacita_dnefs_format::receipt::Receipt;
use tacita_dnefs_format::record::{Kind, Part};
use tacita_dnefs_format::{CipherChoice, KeyPos, key_page};
use tacita_secret::{CheckValue, MessageKey, Traces, check_value_of};

use crate::dump::{Dump, Node};

/// Longest payload that is believed, in bytes.
const PAYLOAD_MAX: usize = 16 << 20;

/// Keys in use.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Their check values.
    pub(crate) keys: HashSet<CheckValue>,
    /// Nodes with this number and greater are newer than the checkpoint.
    pub(crate) next_sqnum: u64,
    /// Receipts of purges by their epochs, also those that are newer than the checkpoint.
    pub(crate) receipts: BTreeMap<u64, Receipt>,
}

/// The keys that are in the newest page for each place.
struct Newest<'a> {
    keys: HashMap<KeyPos, &'a [u8]>,
    cipher: CipherChoice,
}

impl<'a> Newest<'a> {
    fn of(dump: &'a Dump<'_>, cipher: CipherChoice) -> Option<Self> {
        let layout = dump.layout?;
        let mut pages: HashMap<(u32, u32), (u64, &'a [u8])> = HashMap::new();
        for page in &dump.key_pages {
            let newest = pages.entry((page.place.leb, page.place.page)).or_default();
            if newest.1.is_empty() || newest.0 < page.place.epoch {
                *newest = (page.place.epoch, &page.bytes);
            }
        }
        let mut keys = HashMap::new();
        for ((leb, page), (_, bytes)) in pages {
            let first = page * layout.keys_per_page;
            for (slot, key) in (first..).zip(key_page::keys(bytes, cipher.key_len())) {
                keys.insert(KeyPos { leb, slot }, key);
            }
        }
        Some(Self { keys, cipher })
    }

    /// The payload of a node, if it is one of the checkpoint and its key is there.
    fn open(&self, dump: &Dump<'_>, node: &Node, kind: Kind) -> Option<Vec<u8>> {
        let key = MessageKey::take(self.cipher, self.keys.get(&node.header.key)?);
        let mut bytes = dump.bytes[node.offset..][..node.header.len_bytes as usize].to_vec();
        let (mut traces, authenticates) = (Traces::new(), self.cipher.authenticates());
        let opened = node::open(&mut bytes, &node.header, &key, &mut traces, authenticates).ok()?;
        (opened.kind == kind).then(|| opened.payload(PAYLOAD_MAX).ok())?
    }

    /// The newest root that opens, and its payload.
    fn root<'n>(&self, dump: &'n Dump<'_>) -> Option<(&'n Node, Vec<u8>)> {
        let roots =
            dump.nodes.iter().filter_map(|node| Some((node, self.open(dump, node, Kind::Root)?)));
        roots.max_by_key(|(node, _)| node.header.sqnum)
    }
}

/// The number of the newest root of a dump, if any opens.
pub(crate) fn newest_root(dump: &Dump<'_>, cipher: CipherChoice) -> Option<u64> {
    Newest::of(dump, cipher)?.root(dump).map(|(node, _)| node.header.sqnum)
}

/// The keys in use.
pub(crate) fn live(dump: &Dump<'_>, cipher: CipherChoice) -> Result<Live, String> {
    let newest = Newest::of(dump, cipher).ok_or("no layout")?;
    let mut by_key: HashMap<KeyPos, Vec<&Node>> = HashMap::new();
    for node in &dump.nodes {
        by_key.entry(node.header.key).or_default().push(node);
    }
    let (node, payload) = newest.root(dump).ok_or("no root opens")?;
    let root = Root::decode(&payload).map_err(|e| format!("its root: {e}"))?;

    let mut live = Live { next_sqnum: root.next_sqnum, ..Live::default() };
    let mut receipts = Vec::new();
    let mut add = |key: KeyPos| {
        let bytes = newest.keys.get(&key).ok_or(format!("the page of key {key:?} is missing"))?;
        live.keys.insert(check_value_of(cipher, bytes));
        Ok::<_, String>(())
    };
    add(node.header.key)?;
    let payload_of = |node: &NodeRef, kind: Kind| {
        let mut nodes = by_key.get(&node.key).into_iter().flatten();
        let found = nodes.find_map(|found| newest.open(dump, found, kind));
        found.ok_or(format!("a node is missing ({kind:?})"))
    };
    for table in &root.orphans {
        add(table.key)?;
    }
    for table in &root.key_maps {
        add(table.key)?;
        let payload = payload_of(table, Kind::Table)?;
        for map in Table::decode(&payload).map_err(|e| format!("a table: {e}"))?.0 {
            add(map.key)?;
        }
    }
    for table in &root.index {
        add(table.key)?;
        let payload = payload_of(table, Kind::Table)?;
        for chunk in Table::decode(&payload).map_err(|e| format!("a table: {e}"))?.0 {
            add(chunk.key)?;
            let payload = payload_of(&chunk, Kind::IndexChunk)?;
            for (at, key) in IndexChunk::decode(&payload).map_err(|e| format!("a chunk: {e}"))?.0 {
                add(key)?;
                if matches!(at.part(), Some(Part::Receipt(_))) {
                    receipts.extend(by_key.get(&key).into_iter().flatten().copied());
                }
            }
        }
    }
    let newer = |node: &&Node| node.header.sqnum >= root.next_sqnum;
    receipts.extend(dump.nodes.iter().filter(newer));
    let payloads = receipts.iter().filter_map(|node| newest.open(dump, node, Kind::Receipt));
    let receipts = payloads.filter_map(|payload| Receipt::decode(&payload).ok());
    live.receipts = receipts.map(|receipt| (receipt.epoch, receipt)).collect();
    Ok(live)
}
