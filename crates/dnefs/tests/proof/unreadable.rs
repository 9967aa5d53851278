//! Pages that cannot be read, for a while or for good: what is in them is lost and nothing else, and nothing is
//! written over what may be there the next time.

use std::sync::{Arc, Mutex, PoisonError};

use tacita_clock::System;
use tacita_dnefs::{Dnefs, Kind, Layout, PurgeScope, check, read_superblock};
use tacita_flash::{self as flash, Emulator, EraseReport, Geometry, Leb, Volume};
use tacita_vfs::{FileSystem, FileType, NewNode, Stamps, Timestamp};

use crate::deletion::{make, remove};
use crate::volumes::{fresh, open};

const FILES: usize = 12;
/// Nothing that could be compressed.
const CONTENT: [u8; 9000] = {
    let (mut content, mut state, mut at) = ([0; 9000], 1_u32, 0);
    while at < content.len() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        content[at] = state.to_be_bytes()[0];
        at += 1;
    }
    content
};

/// A volume of which one page cannot be read, until its erase block is replaced.
#[derive(Debug)]
struct BadPage {
    chip: Arc<Emulator>,
    bad: Mutex<Option<(Leb, u32)>>,
}

impl BadPage {
    fn new(chip: &Arc<Emulator>, leb: Leb, page: u32) -> Arc<Self> {
        Arc::new(Self { chip: Arc::clone(chip), bad: Mutex::new(Some((leb, page))) })
    }

    fn heal(&self, replaced: Option<Leb>) {
        let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        if bad.is_some_and(|(leb, _)| replaced.is_none_or(|replaced| replaced == leb)) {
            *bad = None;
        }
    }
}

impl Volume for BadPage {
    fn geometry(&self) -> Geometry {
        self.chip.geometry()
    }

    fn read(&self, leb: Leb, offset: u32, buf: &mut [u8]) -> flash::Result<()> {
        let page_len = self.geometry().page_len_bytes;
        let end = offset + u32::try_from(buf.len()).unwrap();
        let bad = *self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((bad, page)) = bad
            && (bad, true) == (leb, offset < (page + 1) * page_len && page * page_len < end)
        {
            return Err(flash::Error::new(flash::Kind::Io, format!("cannot read block {}", leb.0)));
        }
        self.chip.read(leb, offset, buf)
    }

    fn append(&self, leb: Leb, offset: u32, data: &[u8]) -> flash::Result<()> {
        self.chip.append(leb, offset, data)
    }

    fn change(&self, leb: Leb, data: &[u8]) -> flash::Result<()> {
        self.chip.change(leb, data)?;
        self.heal(Some(leb));
        Ok(())
    }

    fn map(&self, leb: Leb) -> flash::Result<()> {
        self.chip.map(leb)
    }

    fn unmap(&self, leb: Leb) -> flash::Result<()> {
        self.chip.unmap(leb)?;
        self.heal(Some(leb));
        Ok(())
    }

    fn is_mapped(&self, leb: Leb) -> flash::Result<bool> {
        self.chip.is_mapped(leb)
    }

    fn sync(&self) -> flash::Result<()> {
        self.chip.sync()
    }

    fn flush_erases(&self) -> flash::Result<EraseReport> {
        self.chip.flush_erases()
    }
}

fn open_bad(bad: &Arc<BadPage>) -> tacita_dnefs::Result<Dnefs> {
    Dnefs::open(Arc::<BadPage>::clone(bad), None, Arc::new(System))
}

/// A chip with files, unmounted or after a crash.
fn chip(is_unmounted: bool) -> Arc<Emulator> {
    let chip = fresh(110, 0);
    let fs = open(&chip);
    for number in 0..FILES {
        make(&fs, &format!("file {number}"), &CONTENT);
        if number == FILES / 2 {
            fs.purge(PurgeScope::Deleted).unwrap();
        }
    }
    if is_unmounted {
        fs.close().unwrap();
    } else {
        fs.sync().unwrap();
    }
    Arc::new(chip.power_on().unwrap())
}

fn layout(chip: &Emulator) -> Layout {
    Layout::new(&read_superblock(chip).unwrap().parameters).unwrap()
}

/// How many files can be read.
fn readable(fs: &Dnefs) -> usize {
    let is_readable = |number: &usize| {
        let mut buf = CONTENT.map(|_| 0);
        let found = fs.lookup(fs.root(), format!("file {number}").as_ref());
        found
            .and_then(|(node, _)| fs.read(node, 0, &mut buf))
            .is_ok_and(|len| len == CONTENT.len() && buf == CONTENT)
    };
    (0..FILES).filter(is_readable).count()
}

/// All pages in which something is.
fn pages(chip: &Emulator) -> Vec<(Leb, u32)> {
    let Geometry { leb_len_bytes, lebs, page_len_bytes } = chip.geometry();
    let all = (0..lebs)
        .flat_map(|leb| (0..leb_len_bytes / page_len_bytes).map(move |page| (Leb(leb), page)));
    all.filter(|(leb, page)| {
        let mut content = vec![0; page_len_bytes as usize];
        chip.read(*leb, page * page_len_bytes, &mut content).unwrap();
        content.iter().any(|byte| *byte != 0xff)
    })
    .collect()
}

/// Someone mounts it for writing meanwhile, works and purges, if that is possible.
#[test]
fn what_cannot_be_read_for_a_while_is_there_afterwards() {
    for is_unmounted in [true, false] {
        let whole = chip(is_unmounted);
        let pages = pages(&whole);
        assert!(pages.len() > 100);
        let mut refused = 0;
        for (leb, page) in pages.iter().copied() {
            let chip = Arc::new(whole.snapshot().unwrap());
            let bad = BadPage::new(&chip, leb, page);
            match open_bad(&bad) {
                Ok(fs) => {
                    // The root directory itself may be what cannot be read.
                    let new = NewNode::new(FileType::File, 0o600, Timestamp::default());
                    if let Ok((node, _)) = fs.create(fs.root(), "new".as_ref(), &new) {
                        let _ = fs.write(node, 0, &CONTENT, Stamps::NONE);
                    }
                    let _ = fs.purge(PurgeScope::Deleted);
                    let _ = fs.close();
                }
                Err(e) => {
                    assert_eq!(e.kind(), Kind::Device, "{leb:?}, page {page}: {e}");
                    refused += 1;
                }
            }
            bad.heal(None);
            let fs = open(&chip);
            assert_eq!(readable(&fs), FILES, "unmounted: {is_unmounted}, {leb:?}, page {page}");
        }
        assert!(!is_unmounted || refused * 8 < pages.len(), "{refused} of {}", pages.len());
    }
}

/// Whoever reads loses what is in it.
#[test]
fn whoever_reads_has_all_that_can_be_read() {
    let whole = chip(true);
    let layout = layout(&whole);
    let (mut refused, mut lost_most) = (0, 0);
    for (leb, page) in pages(&whole) {
        let bad = BadPage::new(&whole, leb, page);
        let what = format!("{leb:?}, page {page}");
        match Dnefs::open_read_only(Arc::<BadPage>::clone(&bad), None, Arc::new(System)) {
            Ok(fs) if fs.attr(fs.root()).is_ok() => {
                lost_most = lost_most.max(FILES - readable(&fs));
            }
            Ok(_) => refused += 1,
            Err(e) => {
                assert!(matches!(e.kind(), Kind::Device | Kind::Damaged), "{what}: {e}");
                assert!(leb.0 > 1, "{what}: a superblock has a copy: {e}");
                refused += 1;
            }
        }
    }
    // The root, what it leads to, and their keys.
    assert!(refused < 12, "{refused}");
    assert!(lost_most <= layout.keys_per_page as usize, "{lost_most}");
}

/// After a crash a file that was being written may need another size than its inode has, which cannot be read.
#[test]
fn a_file_whose_inode_cannot_be_read_keeps_nobody_from_reading_the_others() {
    let whole = fresh(110, 0);
    let fs = open(&whole);
    let file = make(&fs, "file 0", &CONTENT);
    // Its inode is in another page than what the root is afterwards.
    fs.sync().unwrap();
    for number in 1..FILES {
        make(&fs, &format!("file {number}"), &CONTENT);
    }
    fs.purge(PurgeScope::Deleted).unwrap();
    // Some of it reaches the chip, and the inode does not.
    let long: Vec<u8> = CONTENT.iter().copied().cycle().take(200_000).collect();
    fs.write(file, 0, &long, Stamps::NONE).unwrap();
    drop(fs);
    let whole = Arc::new(whole.power_on().unwrap());
    let layout = layout(&whole);
    let main = layout.key_leb(0) + layout.key_lebs;
    let mut lost = 0;
    for (leb, page) in pages(&whole).into_iter().filter(|(leb, _)| leb.0 >= main) {
        let bad = BadPage::new(&whole, leb, page);
        let opened = Dnefs::open_read_only(Arc::<BadPage>::clone(&bad), None, Arc::new(System));
        let Ok(fs) = opened else { continue };
        if fs.attr(file).is_err() && fs.attr(fs.root()).is_ok() {
            lost += 1;
            assert!(readable(&fs) > 0, "{leb:?}, page {page}");
        }
    }
    assert!(lost > 0, "whoever cannot read the inode reads nothing");
}

#[test]
fn a_superblock_that_cannot_be_read_is_made_anew() {
    let whole = chip(true);
    for leb in [0, 1] {
        let chip = Arc::new(whole.snapshot().unwrap());
        let bad = BadPage::new(&chip, Leb(leb), 0);
        let on: Arc<dyn Volume> = Arc::<BadPage>::clone(&bad);
        let found = check(&on, None, &mut |_, _| {}).unwrap();
        assert!(found.wrong.len() == 1 && found.mended_by_mount == 1, "{found:?}");
        let said =
            format!("the superblock in block {leb} cannot be read: cannot read block {leb};");
        assert!(found.wrong[0].starts_with(&said), "{found:?}");
        let fs = open_bad(&bad).unwrap();
        assert_eq!(readable(&fs), FILES);
        fs.close().unwrap();
        assert!(check(&on, None, &mut |_, _| {}).unwrap().wrong.is_empty());
    }
    // It may be there where nothing can be read.
    let volume = BadPage::new(&whole, Leb(0), 0);
    *volume.bad.lock().unwrap() = None;
    assert!(open_bad(&volume).is_ok());
}

/// A page of keys: the purge tells that it is not complete, and the volume stays in use.
#[test]
fn a_page_of_keys_that_cannot_be_read_takes_its_own_nodes_and_nothing_else() {
    let whole = chip(true);
    let layout = layout(&whole);
    let mut in_use = 0;
    for page in 0..8 {
        let chip = Arc::new(whole.snapshot().unwrap());
        let leb = Leb(layout.key_leb(0));
        let bad = BadPage::new(&chip, leb, page);
        let Ok(fs) = open_bad(&bad) else { continue };
        let left = readable(&fs);
        if left == FILES || left == 0 || fs.attr(fs.root()).is_err() {
            continue;
        }
        in_use += 1;
        make(&fs, "new", &CONTENT);
        remove(&fs, "new");
        let receipt = fs.purge(PurgeScope::All).unwrap();
        assert!(!receipt.is_complete() && receipt.damaged_pages == 1, "page {page}: {receipt:?}");
        assert!(!fs.close().unwrap().is_complete());
        drop(fs);
        let fs = open_bad(&bad).unwrap();
        assert_eq!(readable(&fs), left, "page {page}");
        fs.close().unwrap();
        bad.heal(None);
        let fs = open(&chip);
        assert_eq!(readable(&fs), FILES, "page {page}");
        assert!(fs.purge(PurgeScope::All).unwrap().is_complete(), "page {page}");
    }
    assert!(in_use > 1, "{in_use}");
}

/// Garbage is collected elsewhere.
#[test]
fn an_erase_block_that_cannot_be_read_keeps_nobody_from_writing() {
    let chip = fresh(64, 0);
    let fs = open(&chip);
    make(&fs, "kept", &CONTENT);
    let long: Vec<u8> = CONTENT.iter().copied().cycle().take(48 * 4096).collect();
    make(&fs, "file 0", &long);
    fs.close().unwrap();
    drop(fs);
    let layout = layout(&chip);
    let main = layout.key_leb(0) + layout.key_lebs..chip.geometry().lebs;
    let mapped: Vec<Leb> = main.map(Leb).filter(|leb| chip.is_mapped(*leb).unwrap()).collect();
    for leb in mapped {
        let chip = Arc::new(chip.snapshot().unwrap());
        let bad = BadPage::new(&chip, leb, 20);
        let Ok(fs) = open_bad(&bad) else { continue };
        let Ok((file, _)) = fs.lookup(fs.root(), "file 0".as_ref()) else { continue };
        // Every other node, so that no erase block becomes empty by itself.
        for round in 0..20 {
            for node in (0..48).step_by(2) {
                let piece = &CONTENT[round..][..4096];
                fs.write(file, node * 4096, piece, Stamps::NONE)
                    .unwrap_or_else(|e| panic!("{leb:?}, round {round}: {e}"));
            }
            fs.sync().unwrap_or_else(|e| panic!("{leb:?}, round {round}: {e}"));
        }
    }
}
