use std::fs;
use std::os::unix::fs::FileExt;

use super::*;
use crate::{Allocation, BlockNo, BlockRange, Extent, Kind, conformance};

fn numbered(folder: &Path) -> impl Fn() -> PathBuf {
    let next = std::sync::atomic::AtomicU32::new(0);
    move || folder.join(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string())
}

#[test]
fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let path = numbered(folder.path());
    conformance::check(|g| {
        Box::new(FileDevice::create(path(), g.len_bytes(), g.block_len_bytes).unwrap())
    });
}

#[test]
fn conforms_directly_and_with_discards() {
    let folder = tempfile::tempdir().unwrap();
    let path = numbered(folder.path());
    let options = |g: Geometry| FileOptions::new(g.block_len_bytes).direct(true).discard(true);
    let small = Geometry::within(1 << 20, 512).unwrap();
    if options(small).create(path(), small.len_bytes()).is_err() {
        eprintln!("SKIPPED: no direct access in blocks of 512 bytes on the temporary folder");
        return;
    }
    conformance::check(|g| Box::new(options(g).create(path(), g.len_bytes()).unwrap()));
}

#[test]
fn more_buffers_than_the_kernel_takes_at_once_are_written() {
    let folder = tempfile::tempdir().unwrap();
    // It takes 1,024.
    let blocks = 2049;
    let device = FileDevice::create(folder.path().join("image"), 2049 * 512, 512).unwrap();
    let content: Vec<u8> = (0..251).cycle().take(blocks).flat_map(|n| [n; 512]).collect();
    let mut parts: Vec<&[u8]> = content.chunks(512).collect();
    parts.insert(1, &[]);
    device.write_gathered(BlockNo(0), &parts).unwrap();
    let mut back = vec![0; content.len()];
    device.read(BlockNo(0), &mut back).unwrap();
    assert!(back == content);
}

#[test]
fn keeps_what_was_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let device = FileDevice::create(&path, 10_000, 4096).unwrap();
    assert_eq!(device.geometry().blocks, 2);
    device.write(BlockNo(1), &[7; 4096]).unwrap();
    device.flush().unwrap();
    drop(device);
    let device = FileDevice::open(&path, Access::ReadOnly, 4096).unwrap();
    assert_eq!(device.geometry().blocks, 2);
    let mut block = [0; 4096];
    device.read(BlockNo(1), &mut block).unwrap();
    assert_eq!(block, [7; 4096]);
    let write = device.write(BlockNo(0), &block);
    assert_eq!(write.unwrap_err().kind(), Kind::ReadOnly);
    device.flush().unwrap();
}

#[test]
fn is_locked_while_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let writer = FileDevice::create(&path, 8192, 512).unwrap();
    writer.write(BlockNo(0), &[9; 512]).unwrap();
    for error in [
        FileDevice::open(&path, Access::ReadWrite, 512).unwrap_err(),
        FileDevice::open(&path, Access::ReadOnly, 512).unwrap_err(),
        FileDevice::create(&path, 512, 512).unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Busy);
        let text = format!("{} is in use by another process", path.display());
        assert_eq!(error.to_string(), text);
    }
    let mut block = [0; 512];
    writer.read(BlockNo(0), &mut block).unwrap();
    assert_eq!(block, [9; 512], "a refused create left the content alone");
    drop(writer);
    let reader = FileDevice::open(&path, Access::ReadOnly, 512).unwrap();
    FileDevice::open(&path, Access::ReadOnly, 512).unwrap();
    let error = FileDevice::open(&path, Access::ReadWrite, 512).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    drop(reader);
    let writer = FileDevice::open(&path, Access::ReadWrite, 512).unwrap();
    // As a process has it that is just being started.
    let _copy = writer.file.try_clone().unwrap();
    drop(writer);
    FileDevice::open(&path, Access::ReadWrite, 512).unwrap();
}

#[test]
fn a_missing_file_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let error = FileDevice::open(&path, Access::ReadWrite, 512).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(!path.exists());
}

#[test]
fn discards_are_ignored_unless_asked_for() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let whole = BlockRange { start: BlockNo(0), count: 16 };
    let device = FileDevice::create(&path, 65_536, 4096).unwrap();
    device.write(BlockNo(0), &vec![1; 65_536]).unwrap();
    device.discard(whole).unwrap();
    device.flush().unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() >= 128);
    let mut block = [0; 4096];
    device.read(BlockNo(3), &mut block).unwrap();
    assert_eq!(block, [1; 4096]);
}

#[test]
fn zeroes_make_holes_only_where_discards_do() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let whole = BlockRange { start: BlockNo(0), count: 16 };
    for discard in [false, true] {
        let path = folder.path().join(format!("image-{discard}"));
        let options = FileOptions::new(4096).discard(discard);
        let device = options.create(&path, 65_536).unwrap();
        assert_eq!(device.extent(whole).unwrap().allocation, Allocation::Hole);
        device.write(BlockNo(0), &vec![1; 65_536]).unwrap();
        assert_eq!(
            device.extent(whole).unwrap(),
            Extent { count: 16, allocation: Allocation::Data }
        );
        device.write_zeroes(BlockRange { start: BlockNo(1), count: 15 }).unwrap();
        device.flush().unwrap();
        let mut content = vec![2; 65_536];
        device.read(BlockNo(0), &mut content).unwrap();
        assert!(content[..4096].iter().all(|b| *b == 1));
        assert!(content[4096..].iter().all(|b| *b == 0));
        let is_full = fs::metadata(&path).unwrap().blocks() >= 128;
        let rest = device.extent(BlockRange { start: BlockNo(1), count: 15 }).unwrap();
        assert_eq!(is_full, rest.allocation == Allocation::Data, "{rest:?}");
        if !discard {
            assert!(is_full);
        } else if is_full {
            eprintln!("SKIPPED: holes: the temporary folder's file system has none");
        }
    }
}

#[test]
fn a_rest_is_less_than_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    for (len, rest) in [(10_000, &bytes[8192..]), (8193, &bytes[8192..8193]), (8192, &[]), (0, &[])]
    {
        fs::write(&path, &bytes[..len]).unwrap();
        let device = FileDevice::open(&path, Access::ReadOnly, 4096).unwrap();
        let device: std::sync::Arc<dyn BlockDevice> = std::sync::Arc::new(device);
        // By its owner, as everybody asks it.
        assert_eq!(BlockDevice::rest(&device).unwrap(), rest, "{len} bytes");
        drop(device);
        let device = FileDevice::open(&path, Access::ReadWrite, 4096).unwrap();
        device.zero_rest().unwrap();
        let zeroed = [&bytes[..len - rest.len()], &vec![0; rest.len()]].concat();
        assert_eq!(fs::read(&path).unwrap(), zeroed, "{len} bytes");
        drop(device);
        fs::write(&path, &bytes[..len]).unwrap();
        match FileOptions::new(512).direct(true).open(&path, Access::ReadOnly) {
            Ok(device) => assert_eq!(device.rest().unwrap(), bytes[len / 512 * 512..len]),
            Err(_) => eprintln!("SKIPPED: no direct access in blocks of 512 bytes"),
        }
    }
}

fn unpublished(path: &Path, replace: bool) -> FileDevice {
    let device = FileOptions::new(4096).replace(replace).create_unpublished(path, 8192).unwrap();
    device.write(BlockNo(0), &[1; 4096]).unwrap();
    device
}

#[test]
fn what_comes_meanwhile_keeps_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    for was_there in [false, true] {
        for replace in [false, true] {
            let _ = fs::remove_file(&path);
            if was_there {
                fs::write(&path, "was there").unwrap();
            }
            let device = unpublished(&path, replace);
            let other = folder.path().join("other");
            fs::write(&other, vec![9; 8192]).unwrap();
            fs::rename(&other, &path).unwrap();
            let used = FileDevice::open(&path, Access::ReadWrite, 4096).unwrap();
            let refused = device.publish(&mut |_, _| {}).unwrap_err();
            let kind = if replace { Kind::Busy } else { Kind::Exists };
            assert_eq!(refused.kind(), kind, "{refused}");
            drop(used);
            assert!(fs::read(&path).unwrap() == [9; 8192]);
        }
    }
    let device = unpublished(&path, true);
    fs::rename(&path, folder.path().join("moved")).unwrap();
    fs::write(&path, "nobody uses this").unwrap();
    device.publish(&mut |_, _| {}).unwrap();
    assert!(fs::read(&path).unwrap()[..4096] == [1; 4096]);
    assert!(fs::read(folder.path().join("moved")).unwrap() == [9; 8192], "it has a name");
}

#[test]
fn what_is_replaced_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let (path, name) = (folder.path().join("image"), folder.path().join("name"));
    let content = vec![7; 3 << 20];
    for has_other_name in [false, true] {
        fs::write(&path, &content).unwrap();
        if has_other_name {
            fs::hard_link(&path, &name).unwrap();
        }
        // Stands for who reads the blocks that the file system has got back.
        let held = File::open(&path).unwrap();
        let device = unpublished(&path, false);
        let mut seen = 0;
        device.publish(&mut |done, total| seen = done.max(seen).min(total)).unwrap();
        let mut left = vec![1; content.len()];
        held.read_exact_at(&mut left, 0).unwrap();
        assert_eq!(left == content, has_other_name);
        assert_eq!(left.iter().all(|byte| *byte == 0), !has_other_name);
        assert_eq!(seen, if has_other_name { 0 } else { 3 << 20 });
        assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
    }
}

/// When it has been looked at, nobody sees: neither where the kernel would note it at each reading nor
/// where it does so once after each change.
#[test]
fn reading_leaves_no_time_of_access() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_hours(1);
    let times = fs::FileTimes::new().set_accessed(long_ago);
    fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let accessed = || fs::metadata(&path).unwrap().accessed().unwrap();
    let mut block = [0; 4096];
    for access in [Access::ReadOnly, Access::ReadWrite] {
        for direct in [false, true] {
            let options = FileOptions::new(4096).direct(direct);
            let Ok(device) = options.open(&path, access) else { continue };
            device.read(BlockNo(3), &mut block).unwrap();
            device.read(BlockNo(200), &mut block).unwrap();
            assert_eq!(accessed(), long_ago, "{access:?}");
            drop(device);
            assert_eq!(accessed(), long_ago, "{access:?}");
        }
    }
    let made = FileOptions::new(4096).replace(true).create_unpublished(&path, 1 << 20).unwrap();
    let before = made.file.metadata().unwrap().accessed().unwrap();
    made.write(BlockNo(0), &[1; 4096]).unwrap();
    made.read(BlockNo(0), &mut block).unwrap();
    assert_eq!(made.file.metadata().unwrap().accessed().unwrap(), before);
    // Somebody else's reading is noted, if the file system notes any.
    drop(fs::read(&path).unwrap());
    if accessed() == long_ago {
        eprintln!("SKIPPED: this file system notes no times of access");
    }
}

/// The kernel lets nobody write to it.
#[test]
fn a_program_that_runs_is_in_use() {
    let program = std::env::current_exe().unwrap();
    let error = FileDevice::open(&program, Access::ReadWrite, 512).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
}

/// What is asked for ahead is on its way for a while, and not to be given up until it is there.
#[test]
fn what_is_read_ahead_is_forgotten_too() {
    let folder = tempfile::tempdir().unwrap();
    let len = 64 << 20;
    let device = FileDevice::create(folder.path().join("device"), len, 4096).unwrap();
    let file = device.file.try_clone().unwrap();
    file.write_all_at(&vec![7; 64 << 20], 0).unwrap();
    device.flush().unwrap();
    device.forget_cached();
    let cached = || super::cache::cached_pages(&file, &(0..len));
    if cached() != Some(0) {
        return eprintln!(
            "SKIPPED: what_is_read_ahead_is_forgotten_too: the system does not tell, or has it in memory alone"
        );
    }
    for _ in 0..20 {
        for block in (0..device.geometry().blocks).step_by(3) {
            device.will_read(BlockRange { start: BlockNo(block), count: 1 });
        }
        device.forget_cached();
        assert_eq!(cached(), Some(0));
    }
}
