//! Real mounts of the file system in memory.

#![allow(clippy::disallowed_methods, reason = "other processes live in the time of the machine")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FallocateFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use tacita_clock::{Clock, Simulated, System};
use tacita_testkit::{InoScheme, MemoryFs, MountGuard, Watchdog, skip_without_fuse};
use tacita_vfs::fuse::{Mount, MountOptions, mount};
use tacita_vfs::posix::Caller;
use tacita_vfs::{FileSystem, FileType, Kind, Posix};

/// Longest time that a test may take.
const TIME_MAX: Duration = Duration::from_mins(20);

/// A mount for one test.
struct Mounted {
    // In this order they are dropped.
    mount: Mount,
    guard: MountGuard,
    posix: Arc<Posix<MemoryFs>>,
    _watchdog: Watchdog,
}

impl Mounted {
    fn new(test: &str, fs: MemoryFs, options: &MountOptions) -> Option<Self> {
        Self::at_times_of(Arc::new(System), test, fs, options)
    }

    fn at_times_of(
        clock: Arc<dyn Clock>,
        test: &str,
        fs: MemoryFs,
        options: &MountOptions,
    ) -> Option<Self> {
        if skip_without_fuse(test) {
            return None;
        }
        let watchdog = Watchdog::start(test, TIME_MAX);
        let guard = MountGuard::new().unwrap();
        let posix = Arc::new(Posix::new(fs, clock));
        let mount = mount(Arc::clone(&posix), guard.path(), options).unwrap();
        Some(Self { mount, guard, posix, _watchdog: watchdog })
    }

    fn plain(test: &str) -> Option<Self> {
        Self::new(test, MemoryFs::default(), &MountOptions::default())
    }

    fn renumbering(test: &str) -> Option<Self> {
        let fs = MemoryFs::new(InoScheme::Path, None);
        Self::new(test, fs, &MountOptions::default())
    }

    fn node_count(&self) -> usize {
        self.posix.file_system().node_count()
    }

    /// Waits until so many nodes are held: the kernel forgets in its own time.
    fn await_node_count(&self, count: usize) {
        let start = Instant::now();
        while self.node_count() != count {
            assert!(
                start.elapsed() < TIME_MAX,
                "{} nodes are left instead of {count}",
                self.node_count()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn read_write(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn files_directories_and_links() {
    let Some(m) = Mounted::plain("files_directories_and_links") else {
        return;
    };
    let at = |path: &str| m.guard.join(path);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::write(at("a/b/f"), b"hello").unwrap();
    fs::hard_link(at("a/b/f"), at("g")).unwrap();
    symlink("a/b/f", at("s")).unwrap();
    assert_eq!(fs::read(at("s")).unwrap(), b"hello");
    assert_eq!(fs::read_link(at("s")).unwrap(), Path::new("a/b/f"));
    let meta = fs::metadata(at("g")).unwrap();
    assert_eq!((meta.nlink(), meta.len(), meta.blocks()), (2, 5, 8));
    assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 3);
    fs::rename(at("a/b"), at("c")).unwrap();
    assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 2);
    assert_eq!(fs::read(at("c/f")).unwrap(), b"hello");
    assert!(fs::read(at("s")).is_err(), "the link points nowhere now");
    let big: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(at("big"), &big).unwrap();
    assert!(fs::read(at("big")).unwrap() == big);
    fs::write(at("big"), b"short").unwrap();
    assert_eq!(fs::read(at("big")).unwrap(), b"short");
    let error = fs::remove_dir(at("c")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTEMPTY));
    fs::remove_dir_all(at("c")).unwrap();
    let stats = rustix::fs::statvfs(m.guard.path()).unwrap();
    assert_eq!((stats.f_bsize, stats.f_namemax), (4096, 255));
}

#[test]
fn names_are_absent_until_they_are_made() {
    let Some(m) = Mounted::plain("names_are_absent_until_they_are_made") else {
        return;
    };
    let at = |path: &str| m.guard.join(path);
    let absent = |path: &str| fs::symlink_metadata(at(path)).unwrap_err().raw_os_error();
    let names = ["made", "folder", "linked", "moved", "opened"];
    for name in names.iter().chain(&names) {
        assert_eq!(absent(name), Some(libc::ENOENT));
    }
    fs::write(at("made"), b"1").unwrap();
    fs::create_dir(at("folder")).unwrap();
    fs::hard_link(at("made"), at("linked")).unwrap();
    fs::rename(at("linked"), at("moved")).unwrap();
    File::options().write(true).create_new(true).open(at("opened")).unwrap();
    for name in names {
        assert_eq!(fs::symlink_metadata(at(name)).is_ok(), name != "linked", "{name}");
    }
    fs::remove_file(at("moved")).unwrap();
    assert_eq!((absent("linked"), absent("moved")), (Some(libc::ENOENT), Some(libc::ENOENT)));
}

#[test]
fn the_kernel_remembers_what_is_absent_as_long_as_it_may() {
    for (ttl, remembers) in [(Duration::from_hours(1), true), (Duration::ZERO, false)] {
        let options = MountOptions { ttl, ..MountOptions::default() };
        let test = "the_kernel_remembers_what_is_absent_as_long_as_it_may";
        let Some(m) = Mounted::new(test, MemoryFs::default(), &options) else {
            return;
        };
        let path = m.guard.join("late");
        fs::symlink_metadata(&path).unwrap_err();
        // Past the mount, as no system does while it is mounted.
        let (root, kind) = (m.posix.root(), (FileType::File, 0o644));
        m.posix.mknod(Caller::default(), root, "late".as_ref(), kind, 0).unwrap();
        assert_eq!(fs::symlink_metadata(&path).is_err(), remembers, "for {ttl:?}");
    }
}

#[test]
fn exchange_and_noreplace() {
    let Some(m) = Mounted::plain("exchange_and_noreplace") else {
        return;
    };
    let (one, two) = (m.guard.join("one"), m.guard.join("two"));
    fs::write(&one, b"1").unwrap();
    fs::create_dir(&two).unwrap();
    let cwd = rustix::fs::CWD;
    let error = rustix::fs::renameat_with(cwd, &one, cwd, &two, RenameFlags::NOREPLACE);
    assert_eq!(error, Err(Errno::EXIST));
    rustix::fs::renameat_with(cwd, &one, cwd, &two, RenameFlags::EXCHANGE).unwrap();
    assert!(one.is_dir());
    assert_eq!(fs::read(&two).unwrap(), b"1");
}

#[test]
fn an_unlinked_file_lives_while_open() {
    let Some(m) = Mounted::plain("an_unlinked_file_lives_while_open") else {
        return;
    };
    let path = m.guard.join("f");
    let mut file = read_write(&path);
    file.write_all(b"still here").unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    assert_eq!(m.node_count(), 2);
    drop(file);
    m.await_node_count(1);
    fs::write(&path, b"a").unwrap();
    fs::write(m.guard.join("g"), b"b").unwrap();
    fs::rename(&path, m.guard.join("g")).unwrap();
    m.await_node_count(2);
}

#[test]
fn nodes_that_the_kernel_never_forgot_are_erased_at_the_end() {
    let Some(mut m) = Mounted::plain("nodes_that_the_kernel_never_forgot") else {
        return;
    };
    for at in 0..200 {
        let path = m.guard.join(format!("f{at}"));
        fs::write(&path, b"x").unwrap();
        fs::remove_file(&path).unwrap();
    }
    m.mount.unmount().unwrap();
    assert_eq!(m.node_count(), 1);
}

/// Every name in `dir` with the number that listing shows.
fn listed(dir: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let named = entries.map(|e| (e.file_name().into_string().unwrap(), e.ino()));
    named.collect()
}

/// Checks that listing and stat agree, whichever comes first.
fn check_numbers(dir: &Path) {
    for round in 0..3 {
        for (name, number) in listed(dir) {
            assert_eq!(number, ino(&dir.join(&name)), "{name}, round {round}");
        }
    }
}

#[test]
fn numbers_follow_names() {
    let Some(m) = Mounted::renumbering("numbers_follow_names") else {
        return;
    };
    let at = |path: &str| m.guard.join(path);
    fs::write(at("a"), b"first").unwrap();
    let open = File::open(at("a")).unwrap();
    let number_a = ino(&at("a"));
    fs::rename(at("a"), at("b")).unwrap();
    let number_b = ino(&at("b"));
    assert_ne!(number_a, number_b);
    assert_eq!(open.metadata().unwrap().ino(), number_b);
    // The kernel still knows the first node by the number that is due to the next one.
    fs::write(at("a"), b"second").unwrap();
    assert_eq!(ino(&at("a")), number_a);
    assert_eq!(fs::read(at("a")).unwrap(), b"second");
    assert_eq!(fs::read(at("b")).unwrap(), b"first");
    check_numbers(m.guard.path());
    let names: Vec<_> = listed(m.guard.path()).into_keys().collect();
    assert_eq!(names, ["a", "b"]);
    fs::hard_link(at("b"), at("c")).unwrap();
    assert_eq!(ino(&at("c")), ino(&at("b")));
    fs::remove_file(at("b")).unwrap();
    assert_ne!(ino(&at("c")), number_b);
    check_numbers(m.guard.path());
    // As editors save: again and again a new file takes the name.
    for round in 0..20 {
        fs::write(at("tmp"), format!("{round}")).unwrap();
        fs::rename(at("tmp"), at("a")).unwrap();
        assert_eq!(ino(&at("a")), number_a);
        assert_eq!(fs::read(at("a")).unwrap(), format!("{round}").as_bytes());
    }
    drop(open);
    for name in ["a", "c"] {
        fs::remove_file(at(name)).unwrap();
    }
    m.await_node_count(1);
}

/// Checks that two files have different numbers. Who asks for numbers alone, as `ls -i` does, is told what the kernel
/// has kept, whatever times it has not.
fn check_differ(paths: &[PathBuf; 2]) {
    let alone = |path: &Path| {
        use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
        statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO).unwrap().stx_ino
    };
    for ask in [&alone as &dyn Fn(&Path) -> u64, &ino] {
        assert_ne!(ask(&paths[0]), ask(&paths[1]), "{paths:?}");
    }
}

/// Numbers follow the first of several names. Who makes one that is the first finds the number that it knew for a
/// moment; whatever loses its first name has another one at once, for what is made there next is due to have it.
#[test]
fn numbers_follow_the_first_of_several_names() {
    let test = "numbers_follow_the_first_of_several_names";
    let clock = Arc::new(Simulated::at(SystemTime::UNIX_EPOCH));
    let fs = MemoryFs::new(InoScheme::Path, None);
    let Some(m) = Mounted::at_times_of(clock.clone(), test, fs, &MountOptions::default()) else {
        return;
    };
    let at = |path: &str| m.guard.join(path);
    let differ = |paths: [&str; 2]| check_differ(&paths.map(at));
    fs::write(at("m"), b"").unwrap();
    let known = ino(&at("m"));
    for (source, name) in [("m", "k"), ("k", "i"), ("m", "n")] {
        fs::hard_link(at(source), at(name)).unwrap();
        for path in ["m", name] {
            assert_eq!(ino(&at(path)), known, "{path}");
        }
    }
    // Where a name is lost, by whatever way, nothing lingers.
    fs::remove_file(at("m")).unwrap();
    assert_ne!(ino(&at("k")), known);
    fs::write(at("m"), b"").unwrap();
    assert_eq!(ino(&at("m")), known);
    let first = ino(&at("i"));
    fs::remove_file(at("i")).unwrap();
    fs::write(at("i"), b"").unwrap();
    assert_eq!(ino(&at("i")), first);
    differ(["i", "k"]);
    fs::write(at("other"), b"").unwrap();
    let first = ino(&at("k"));
    fs::rename(at("other"), at("k")).unwrap();
    assert_eq!(ino(&at("k")), first);
    differ(["k", "n"]);
    fs::hard_link(at("n"), at("a")).unwrap();
    let first = ino(&at("n"));
    fs::rename(at("n"), at("o")).unwrap();
    fs::write(at("n"), b"").unwrap();
    assert_eq!(ino(&at("n")), first);
    differ(["n", "o"]);
    // Nor where a folder moves.
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/m"), b"").unwrap();
    let known = ino(&at("d/m"));
    fs::hard_link(at("d/m"), at("d/l")).unwrap();
    assert_eq!(ino(&at("d/l")), known);
    fs::rename(at("d"), at("e")).unwrap();
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/m"), b"").unwrap();
    assert_eq!(ino(&at("d/m")), known);
    differ(["d/m", "e/m"]);
    // After that moment all is as it would be anywhere else.
    fs::hard_link(at("o"), at("0")).unwrap();
    let lingering = ino(&at("o"));
    clock.advance(Duration::from_secs(6));
    assert_ne!(ino(&at("o")), lingering);
    assert_eq!(ino(&at("0")), ino(&at("o")));
    check_numbers(m.guard.path());
}

/// The kernel hears of it where it knew the number as the file's own.
#[test]
fn who_loses_the_first_name_is_known_by_the_next() {
    let Some(m) = Mounted::renumbering("who_loses_the_first_name_is_known_by_the_next") else {
        return;
    };
    let at = |path: &str| m.guard.join(path);
    for (first, second) in [("u", "v"), ("x", "y")] {
        fs::write(at(first), b"").unwrap();
        fs::hard_link(at(first), at(second)).unwrap();
        assert_eq!(ino(&at(first)), ino(&at(second)));
        if first == "u" {
            fs::remove_file(at(first)).unwrap();
        }
        fs::write(at("other"), b"").unwrap();
        fs::rename(at("other"), at(first)).unwrap();
        check_differ(&[first, second].map(at));
    }
    for name in ["B", "p"] {
        fs::write(at(name), b"").unwrap();
    }
    fs::hard_link(at("B"), at("w")).unwrap();
    fs::hard_link(at("p"), at("q")).unwrap();
    fs::rename(at("w"), at("p")).unwrap();
    fs::remove_file(at("p")).unwrap();
    fs::write(at("p"), b"").unwrap();
    check_differ(&["p", "q"].map(at));
}

#[test]
fn numbers_follow_directories_above() {
    let Some(m) = Mounted::renumbering("numbers_follow_directories_above") else {
        return;
    };
    let at = |path: &str| m.guard.join(path);
    fs::create_dir_all(at("d/sub")).unwrap();
    for name in 0..50 {
        fs::write(at(&format!("d/sub/{name}")), b"x").unwrap();
    }
    let open = File::open(at("d/sub/7")).unwrap();
    let before = listed(&at("d/sub"));
    check_numbers(&at("d/sub"));
    fs::rename(at("d"), at("e")).unwrap();
    let after: BTreeMap<_, _> =
        before.keys().map(|name| (name.clone(), ino(&at("e/sub").join(name)))).collect();
    for (name, number) in &before {
        assert_ne!(after[name], *number, "{name}");
    }
    assert_eq!(open.metadata().unwrap().ino(), after["7"]);
    check_numbers(&at("e/sub"));
    check_numbers(&at("e"));
    fs::rename(at("e"), at("d")).unwrap();
    assert_eq!(listed(&at("d/sub")), before);
    check_numbers(&at("d/sub"));
    drop(open);
    fs::remove_dir_all(at("d")).unwrap();
    m.await_node_count(1);
}

#[test]
fn mappings_are_shared_with_reads_and_writes() {
    let Some(m) = Mounted::plain("mappings_are_shared_with_reads_and_writes") else {
        return;
    };
    let path = m.guard.join("f");
    let file = read_write(&path);
    file.set_len(8192).unwrap();
    let len = 8192;
    // JUSTIFICATION: only a mapping goes through the page cache the way programs map files.
    // SAFETY: a fresh mapping of 8192 bytes of a file of that size, which nobody truncates before it
    // is taken away below.
    #[allow(unsafe_code)]
    let map = unsafe {
        use std::os::fd::AsRawFd;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        let at = libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(at.cast::<u8>(), len)
    };
    let beneath = |offset| {
        let fs = m.posix.file_system();
        let (node, _) = fs.lookup(fs.root(), "f".as_ref()).unwrap();
        let mut byte = [0];
        fs.read(node, offset, &mut byte).unwrap();
        byte
    };
    map[4000] = 41;
    assert_eq!(beneath(4000), [0]);
    m.posix.sync_mapped().unwrap();
    assert_eq!(beneath(4000), [41], "nobody else has asked the kernel for it");
    map[5000] = 42;
    let before = file.metadata().unwrap().mtime_nsec();
    // JUSTIFICATION: as above.
    // SAFETY: the mapping made above, in whole.
    #[allow(unsafe_code)]
    let synced = unsafe { libc::msync(map.as_mut_ptr().cast(), len, libc::MS_SYNC) };
    assert_eq!(synced, 0);
    assert_ne!(file.metadata().unwrap().mtime_nsec(), before);
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!(byte, [42]);
    file.write_all_at(&[43], 100).unwrap();
    assert_eq!(map[100], 43);
    // JUSTIFICATION: as above.
    // SAFETY: the mapping made above, in whole, not used afterwards.
    #[allow(unsafe_code)]
    let unmapped = unsafe { libc::munmap(map.as_mut_ptr().cast(), len) };
    assert_eq!(unmapped, 0);
}

#[test]
fn appending_and_copying() {
    let Some(m) = Mounted::plain("appending_and_copying") else {
        return;
    };
    let path = m.guard.join("log");
    std::thread::scope(|scope| {
        for line in [b"aaaaaaa\n", b"bbbbbbb\n"] {
            let path = &path;
            scope.spawn(move || {
                let mut options = OpenOptions::new();
                let mut file = options.append(true).create(true).open(path).unwrap();
                for _ in 0..1000 {
                    file.write_all(line).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.len(), 16_000);
    assert_eq!(text.lines().filter(|l| *l == "aaaaaaa").count(), 1000);
    let (source, target) = (File::open(&path).unwrap(), read_write(&m.guard.join("copy")));
    let (mut from, mut to) = (8, 100);
    let copied =
        rustix::fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), 16_000);
    assert_eq!(copied, Ok(15_992));
    let copy = fs::read(m.guard.join("copy")).unwrap();
    assert_eq!(&copy[100..], &text.as_bytes()[8..]);
    assert_eq!(copy[..100], [0; 100]);
}

#[test]
fn direct_input_and_output() {
    let Some(m) = Mounted::plain("direct_input_and_output") else {
        return;
    };
    let path = m.guard.join("f");
    fs::write(&path, vec![1; 10_000]).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let file = options.open(&path).unwrap();
    file.write_all_at(&[2; 4096], 4096).unwrap();
    let mut all = vec![0; 12_000];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), 10_000);
    assert!(all[..4096].iter().all(|b| *b == 1));
    assert!(all[4096..8192].iter().all(|b| *b == 2));
    assert_eq!(fs::read(&path).unwrap(), all[..10_000]);
}

#[test]
fn listing_twenty_thousand_while_names_go() {
    const COUNT: usize = 20_000;
    let Some(m) = Mounted::plain("listing_twenty_thousand_while_names_go") else {
        return;
    };
    let dir = m.guard.join("d");
    fs::create_dir(&dir).unwrap();
    for at in 0..COUNT {
        File::create(dir.join(format!("{at:05}"))).unwrap();
    }
    let mut seen = HashSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in (0..COUNT).step_by(2) {
                fs::remove_file(dir.join(format!("{at:05}"))).unwrap();
            }
        });
        for entry in fs::read_dir(&dir).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(seen.insert(name.clone()), "{} came twice", name.display());
        }
    });
    for at in (1..COUNT).step_by(2) {
        let name = format!("{at:05}");
        assert!(seen.contains(std::ffi::OsStr::new(&name)), "{name} is missing");
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), COUNT / 2);
    assert_eq!(fs::metadata(&dir).unwrap().len(), COUNT as u64 / 2);
}

#[test]
fn extended_attributes() {
    let Some(m) = Mounted::plain("extended_attributes") else {
        return;
    };
    let path = m.guard.join("f");
    fs::write(&path, b"").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let get = |name: &str, buf: &mut [u8]| rustix::fs::getxattr(&path, name, buf);
    set("user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.a", &vec![7; 65536], XattrFlags::REPLACE).unwrap();
    set("trusted.b", b"", XattrFlags::empty()).unwrap();
    let mut buf = vec![0; 65536];
    // JUSTIFICATION: the safe wrapper never asks the file system with an empty buffer.
    // SAFETY: two strings that end with zero; an empty buffer is never written to.
    #[allow(unsafe_code)]
    let len = unsafe {
        let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        libc::getxattr(path.as_ptr(), c"user.a".as_ptr(), std::ptr::null_mut(), 0)
    };
    assert_eq!(len, 65536);
    assert_eq!(get("user.a", &mut buf[..10]), Err(Errno::RANGE));
    assert_eq!(get("user.a", &mut buf), Ok(65536));
    assert_eq!(get("user.none", &mut buf), Err(Errno::NODATA));
    let len = rustix::fs::listxattr(&path, &mut buf).unwrap();
    assert_eq!(&buf[..len], b"trusted.b\0user.a\0");
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rustix::fs::removexattr(&path, "user.a"), Err(Errno::NODATA));
    let acl = set("system.posix_acl_access", b"", XattrFlags::empty());
    assert!(acl.is_err());
}

#[test]
fn room_and_holes() {
    let size_max_bytes = Some(1 << 20);
    let fs = MemoryFs::new(InoScheme::Node, size_max_bytes);
    let Some(m) = Mounted::new("room_and_holes", fs, &MountOptions::default()) else {
        return;
    };
    let file = read_write(&m.guard.join("f"));
    let reserve = |flags, offset, len| rustix::fs::fallocate(&file, flags, offset, len);
    let meta = || {
        let meta = file.metadata().unwrap();
        (meta.len(), meta.blocks())
    };
    reserve(FallocateFlags::KEEP_SIZE, 0, 8192).unwrap();
    assert_eq!(meta(), (0, 16));
    reserve(FallocateFlags::empty(), 0, 16384).unwrap();
    assert_eq!(meta(), (16384, 32));
    file.write_all_at(&[1; 16384], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    reserve(punch, 4096, 4096).unwrap();
    assert_eq!(meta(), (16384, 24));
    let seek = |what| rustix::fs::seek(&file, what);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(4096)), Ok(8192));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(20_000)), Err(Errno::NXIO));
    reserve(FallocateFlags::ZERO_RANGE, 8000, 400).unwrap();
    assert_eq!(meta(), (16384, 32));
    let mut bytes = [9; 16384];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes[..4096].iter().for_each(|b| assert_eq!(*b, 1));
    bytes[4096..8400].iter().for_each(|b| assert_eq!(*b, 0));
    bytes[8400..].iter().for_each(|b| assert_eq!(*b, 1));
    assert_eq!(reserve(FallocateFlags::empty(), 0, 2 << 20), Err(Errno::NOSPC));
    let full = file.write_all_at(&vec![1; 2 << 20], 0).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    let too_big = file.write_all_at(b"xx", i64::MAX.unsigned_abs() - 1);
    assert!(too_big.is_err());
}

#[test]
fn nothing_changes_through_a_read_only_mount() {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let Some(m) = Mounted::new("read_only", MemoryFs::default(), &options) else {
        return;
    };
    let error = fs::write(m.guard.join("f"), b"").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    let error = fs::create_dir(m.guard.join("d")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let Some(m) = Mounted::plain("what_cannot_be_mounted_says_why") else {
        return;
    };
    let kind = |dir: &Path, options: &MountOptions| {
        let fs = Arc::new(Posix::new(MemoryFs::default(), Arc::new(System)));
        mount(fs, dir, options).unwrap_err().kind()
    };
    let plain = MountOptions::default();
    assert_eq!(kind(m.guard.path(), &plain), Kind::Busy);
    assert_eq!(kind(&m.guard.join("none"), &plain), Kind::NotFound);
    fs::write(m.guard.join("file"), b"").unwrap();
    assert_eq!(kind(&m.guard.join("file"), &plain), Kind::NotDirectory);
    fs::create_dir(m.guard.join("d")).unwrap();
    let odd =
        MountOptions { extra: vec!["noexec,unheard_of".to_owned()], ..MountOptions::default() };
    assert_eq!(kind(&m.guard.join("d"), &odd), Kind::Invalid);
}

#[test]
fn a_mount_in_use_stays() {
    let Some(mut m) = Mounted::plain("a_mount_in_use_stays") else {
        return;
    };
    let mut file = read_write(&m.guard.join("f"));
    assert_eq!(m.mount.unmount().unwrap_err().kind(), Kind::Busy);
    file.write_all(b"still works").unwrap();
    drop(file);
    m.mount.unmount().unwrap();
    assert!(!m.guard.join("f").exists());
    assert_eq!(Arc::strong_count(&m.posix), 1, "nobody else holds it any more");
    // And again on the same folder.
    let mut again = mount(m.posix, m.guard.path(), &MountOptions::default()).unwrap();
    assert_eq!(fs::read(m.guard.join("f")).unwrap(), b"still works");
    again.unmount().unwrap();
}

#[test]
fn a_dropped_mount_serves_its_last_user() {
    let Some(m) = Mounted::plain("a_dropped_mount_serves_its_last_user") else {
        return;
    };
    let mut file = read_write(&m.guard.join("f"));
    drop(m.mount);
    assert!(!m.guard.join("f").exists());
    file.write_all(b"out of sight").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "out of sight");
}

#[test]
fn its_number_is_told_until_the_kernel_has_let_go() {
    let Some(m) = Mounted::plain("its_number_is_told_until_the_kernel_has_let_go") else {
        return;
    };
    let device = m.mount.device().unwrap().clone();
    let number = fs::metadata(m.guard.path()).unwrap().dev();
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let file = read_write(&m.guard.join("f"));
    drop(m.mount);
    assert_eq!(device.number(), Some(&*number), "it is out of sight, and in use");
    drop(file);
    assert_eq!(device.number(), None);
}

#[test]
fn cached_pages_go_with_the_last_name() {
    let Some(m) = Mounted::plain("cached_pages_go_with_the_last_name") else {
        return;
    };
    let (one, two) = (m.guard.join("one"), m.guard.join("two"));
    let read_count = || m.posix.file_system().read_count();
    let mut content = vec![7; 100_000];
    fs::write(&one, &content).unwrap();
    fs::hard_link(&one, &two).unwrap();
    assert_eq!(fs::read(&one).unwrap(), content);
    let cached = read_count();
    assert_eq!(fs::read(&one).unwrap(), content);
    let open = File::open(&one).unwrap();
    fs::remove_file(&one).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    open.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(read_count(), cached, "cached across opens, while a name is left");
    fs::remove_file(&two).unwrap();
    let start = Instant::now();
    while read_count() == cached {
        assert!(start.elapsed() < TIME_MAX, "still cached");
        std::thread::sleep(Duration::from_millis(5));
        open.read_exact_at(&mut content, 0).unwrap();
    }
    assert!(content.iter().all(|b| *b == 7));
}

#[test]
fn lower_files_are_passed_through() {
    let options = MountOptions { passthrough: true, ..MountOptions::default() };
    let name = "lower_files_are_passed_through";
    let Some(m) = Mounted::new(name, MemoryFs::default(), &options) else {
        return;
    };
    let lower = tempfile::tempfile().unwrap();
    lower.write_all_at(b"lower", 0).unwrap();
    fs::write(m.guard.join("f"), b"12345").unwrap();
    let backing = Some(Arc::new(lower.try_clone().unwrap()));
    m.posix.file_system().set_backing(backing);
    let one = read_write(&m.guard.join("f"));
    let two = read_write(&m.guard.join("f"));
    let mut text = [0; 5];
    one.read_exact_at(&mut text, 0).unwrap();
    if !rustix::process::geteuid().is_root() {
        assert_eq!(&text, b"12345", "without the privilege it is served as ever");
        return;
    }
    assert_eq!(&text, b"lower");
    two.write_all_at(b"L", 0).unwrap();
    lower.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"Lower");
    drop((one, two));
    m.posix.file_system().set_backing(None);
    assert_eq!(fs::read(m.guard.join("f")).unwrap(), b"12345");
}

#[test]
fn what_cannot_be_passed_through_is_served() {
    let options = MountOptions { passthrough: true, ..MountOptions::default() };
    let name = "what_cannot_be_passed_through_is_served";
    let Some(m) = Mounted::new(name, MemoryFs::default(), &options) else {
        return;
    };
    fs::write(m.guard.join("f"), b"12345").unwrap();
    // The kernel takes nothing but regular files.
    let unfit = Arc::new(File::open("/dev/null").unwrap());
    m.posix.file_system().set_backing(Some(unfit));
    assert_eq!(fs::read(m.guard.join("f")).unwrap(), b"12345");
    fs::write(m.guard.join("new"), b"67890").unwrap();
    assert_eq!(fs::read(m.guard.join("new")).unwrap(), b"67890");
}

#[test]
fn many_threads_at_once() {
    let Some(m) = Mounted::renumbering("many_threads_at_once") else {
        return;
    };
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let dir = m.guard.path();
            scope.spawn(move || {
                for round in 0..100 {
                    let path = dir.join(format!("{}", (thread + round) % 4));
                    let _ = fs::write(&path, format!("{thread} {round}"));
                    let _ = fs::rename(&path, dir.join(format!("{}", round % 5)));
                    let _ = fs::read_dir(dir).unwrap().count();
                    let _ = fs::remove_file(&path);
                }
            });
        }
    });
    check_numbers(m.guard.path());
    fs::remove_dir_all(m.guard.path()).unwrap_err();
    m.await_node_count(1);
}

#[test]
fn what_no_request_waits_for_is_done_beside_them() {
    let Some(m) = Mounted::plain("what_no_request_waits_for_is_done_beside_them") else {
        return;
    };
    let fs = m.posix.file_system();
    for times in 0..3 {
        fs.leave_something();
        assert!(System.wait_event(fs.caught_up(), times, TIME_MAX / 2), "{times}");
    }
}
