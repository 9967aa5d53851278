//! The roots of checkpoints: two erase blocks, appended to in turn. The newest root that is whole counts.
//! Behind it there may be a mark, and the receipt of the last purge before the volume was unmounted.

use tacita_dnefs_format::node::{self, Class, Header};
use tacita_dnefs_format::{Layout, ROOT_LEBS};
use tacita_flash::{Leb, Volume};

use crate::error::{Error, Kind, Result};
use crate::unread::read_block;

/// Where the next root goes.
#[derive(Debug)]
pub(crate) struct Roots {
    layout: Layout,
    /// Which of the two.
    at: usize,
    /// Where in it; its end if nothing more may be appended there.
    offset: u32,
}

/// A root or receipt as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Its header.
    pub(crate) header: Header,
    /// The node.
    pub(crate) bytes: Vec<u8>,
}

/// What was found in both erase blocks.
#[derive(Debug)]
pub(crate) struct Survey {
    /// Whole roots, the newest first.
    pub(crate) roots: Vec<Found>,
    /// Receipts of last purges, in any order.
    pub(crate) receipts: Vec<Found>,
    /// The number of the newest mark that the volume was mounted, or 0.
    pub(crate) mounted: u64,
    /// The number of the newest mark that it was unmounted, or 0.
    pub(crate) unmounted: u64,
    /// Something is behind the newest of them that is neither: a write was cut short. The other erase
    /// block is not appended to before it is replaced, so what is torn there is older.
    pub(crate) is_torn: bool,
    /// Something that may be newer than the newest root cannot be read.
    pub(crate) unread: Option<Error>,
    /// Where the next root goes.
    pub(crate) next: Roots,
}

impl Roots {
    /// The roots of a new volume.
    pub(crate) const fn new(layout: Layout) -> Self {
        Self { layout, at: 0, offset: 0 }
    }

    /// Reads both erase blocks.
    pub(crate) fn survey(volume: &dyn Volume, layout: Layout) -> Result<Survey> {
        let mut survey = Survey {
            roots: Vec::new(),
            receipts: Vec::new(),
            mounted: 0,
            unmounted: 0,
            is_torn: false,
            unread: None,
            next: Self { layout, at: 0, offset: 0 },
        };
        let page = layout.page_len_bytes as usize;
        let (mut newest, mut behind, mut unread) = ([0; 2], [0; 2], [None, None]);
        for (number, leb) in ROOT_LEBS.into_iter().enumerate() {
            let mut block = vec![0; layout.leb_len_bytes as usize];
            unread[number] = read_block(volume, Leb(leb), &mut block)?;
            let scanned = survey.scan(&block, page);
            (newest[number], behind[number]) = (scanned.last, scanned.last_root);
            if scanned.last > newest[1 - number] {
                survey.is_torn = scanned.is_torn;
                let end = u32::try_from(scanned.end).expect("erase blocks are shorter");
                survey.next = Self { layout, at: number, offset: end };
            }
        }
        for (number, unread) in unread.into_iter().enumerate() {
            // All in one of them is older than all in the other.
            let is_older = 0 < newest[number] && newest[number] < newest[1 - number];
            let is_behind = |page: &u32| *page as usize >= behind[number];
            if let Some(unread) =
                unread.filter(|unread| !is_older && unread.pages.iter().any(is_behind))
            {
                survey.unread = Some(unread.why);
            }
        }
        survey.roots.sort_by_key(|found| std::cmp::Reverse(found.header.sqnum));
        if survey.is_torn {
            survey.next.offset = layout.leb_len_bytes;
        }
        Ok(survey)
    }

    /// Puts a root or a mark behind the last one, and makes it durable.
    pub(crate) fn write(&mut self, volume: &dyn Volume, node: &[u8]) -> Result<()> {
        let page = self.layout.page_len_bytes;
        let mut pages = node.to_vec();
        pages.resize(pages.len().next_multiple_of(page as usize), 0);
        let len = u32::try_from(pages.len()).unwrap_or(u32::MAX);
        if len > self.layout.leb_len_bytes {
            return Err(Error::new(Kind::TooLarge, "the root does not fit into an erase block"));
        }
        if len > self.layout.leb_len_bytes - self.offset {
            let other = 1 - self.at;
            volume.change(Leb(ROOT_LEBS[other]), &pages)?;
            (self.at, self.offset) = (other, len);
        } else {
            volume.append(Leb(ROOT_LEBS[self.at]), self.offset, &pages)?;
            self.offset += len;
        }
        Ok(volume.sync()?)
    }
}

/// What is in one of them.
struct Scanned {
    /// Where the next can begin.
    end: usize,
    /// The greatest number.
    last: u64,
    /// Something torn follows that.
    is_torn: bool,
    /// In which page the last root begins.
    last_root: usize,
}

impl Survey {
    /// Looks through one of them.
    fn scan(&mut self, block: &[u8], page: usize) -> Scanned {
        let (mut end, mut last, mut is_torn, mut last_root) = (0, 0, false, 0);
        let mut at = 0;
        while at < block.len() {
            let bytes = &block[at..];
            let mut len = page;
            match Header::parse(bytes) {
                Ok(None) => {
                    at += page;
                    continue;
                }
                Ok(Some(header)) if header.is_whole(bytes) => {
                    len = (header.len_bytes as usize).next_multiple_of(page);
                    last = last.max(header.sqnum);
                    is_torn = false;
                    let found = || {
                        let bytes = bytes[..header.len_bytes as usize].to_vec();
                        Found { header, bytes }
                    };
                    match header.class {
                        Class::Checkpoint => {
                            self.roots.push(found());
                            last_root = at / page;
                        }
                        Class::Record => self.receipts.push(found()),
                        Class::Mounted => self.mounted = self.mounted.max(header.sqnum),
                        Class::Unmounted => self.unmounted = self.unmounted.max(header.sqnum),
                        _ => is_torn = true,
                    }
                }
                _ => is_torn = true,
            }
            at += len;
            end = at;
        }
        Scanned { end, last, is_torn, last_root }
    }
}

/// A mark: [`Class::Mounted`] or [`Class::Unmounted`].
pub(crate) fn mark(class: Class, sqnum: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let len = u32::try_from(node::HEADER_LEN).expect("a header is shorter");
    node::put_mark(&mut bytes, class, sqnum, len);
    bytes
}
