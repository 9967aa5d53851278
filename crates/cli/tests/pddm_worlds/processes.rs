//! What `/proc` says of the daemon: locked memory, threads, descriptors and mappings.

use std::fs;
use std::time::Duration;

use tacita_testkit::{Watchdog, skip_without_fuse};

use crate::judge::cannot;
use crate::world::{Endpoint, Hidden, World, by_hand, time_max};

/// Locked memory, threads and descriptors.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    locked: String,
    threads: String,
    descriptors: usize,
}

/// So often the same is seen before it is believed: a thread has its parent's name for a moment.
const LOOKS: usize = 20;

/// When nobody who has come is served any more: threads end a moment after that.
fn counts(pid: u32) -> Counts {
    const COMERS: [&str; 4] = ["tacita-answer", "nbd-client", "nbd-worker", "fuse-change"];
    let serves = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.into_iter().any(|name| COMERS.contains(&name.trim()))
    };
    let (mut seen, mut times) = (None, 0);
    while times < LOOKS {
        std::thread::sleep(Duration::from_millis(20));
        let now = (!serves()).then(|| counts_now(pid));
        times = if now.is_some() && now == seen { times + 1 } else { 0 };
        seen = now;
    }
    seen.expect("it was seen more than once")
}

fn counts_now(pid: u32) -> Counts {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().to_owned()
    };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    Counts { locked: field("VmLck:"), threads: field("Threads:"), descriptors }
}

type Mapping = (usize, String, String);

/// What a thread that takes requests from a folder has in its heap for one.
const BUFFER_LEN_BYTES: usize = 16 << 20;

/// The heap of such a thread was another thread's before. If that was the twelfth of all at its time it may have
/// kept something of the list of threads of the standard library there, and is a page longer: whoever that was,
/// with or without hidden volumes. Heaps with a buffer count in pieces of this, and so does what is free behind.
const PIECE_LEN_BYTES: usize = 16 << 10;

/// Lengths, rights and names of all mappings, however they lie; the heap is as long as what is in it.
fn mappings(pid: u32) -> Vec<Mapping> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut mappings: Vec<_> = maps
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = fields[0].split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            let len = number(end) - number(start);
            let len = match (fields.get(5), fields[1]) {
                (Some(_), _) => len,
                (None, _) if len <= BUFFER_LEN_BYTES => len,
                (None, "---p") => len.next_multiple_of(PIECE_LEN_BYTES),
                (None, _) => len - len % PIECE_LEN_BYTES,
            };
            let name = fields.get(5).copied().unwrap_or_default();
            (len, fields[1].to_owned(), name.to_owned())
        })
        .filter(|(.., name)| name != "[heap]")
        .collect();
    mappings.sort();
    mappings
}

/// A large device, so that what belongs to a volume is seen.
fn large(hidden: Hidden, endpoint: Endpoint) -> World {
    let mut world = World::new(hidden, endpoint);
    let device = world.path("device");
    world.init_of(&device, "8G");
    world
}

/// When it has just been opened nothing differs.
#[test]
fn an_open_device_tells_nothing() {
    let test = "an_open_device_tells_nothing";
    if cannot(test, &UNMOVED[..1]) || skip_without_fuse(test) {
        return;
    }
    let _watchdog = Watchdog::start(test, time_max());
    for endpoint in [Endpoint::Nbd, Endpoint::Folder] {
        let idle: &[Hidden] = if by_hand() {
            &[Hidden::Nothing, Hidden::Idle(1), Hidden::Idle(2)]
        } else {
            &[Hidden::Nothing, Hidden::Idle(1)]
        };
        let alike = || idle[1..].iter().all(|hidden| differences(*hidden, endpoint).is_none());
        // Answers that meet at the start leave one more stack, with or without hidden volumes; what
        // tells of them would be there each time.
        assert!((0..5).any(|_| alike()), "{:?}", differences(idle[1], endpoint));
    }
}

/// Where the kernel puts a stack and mappings is drawn for each process, and with it by a page how
/// long they are: not for those started by this.
const UNMOVED: [&str; 2] = ["setarch", "--addr-no-randomize"];

/// In what an open device with such hidden volumes differs from one without.
fn differences(hidden: Hidden, endpoint: Endpoint) -> Option<String> {
    let seen = [Hidden::Nothing, hidden].map(|hidden| {
        let mut world = large(hidden, endpoint);
        let open = world.open_under(&UNMOVED, &world.path("device"), &world.own(), &[]);
        let pid = open.daemon.id();
        let seen = (counts(pid), mappings(pid));
        world.close(open, "--drop");
        seen
    });
    assert!(seen[0].0.locked != "0 kB", "{:?}", seen[0].0);
    let more = |a: &[Mapping], b: &[Mapping]| -> Vec<Mapping> {
        let mut rest = a.to_vec();
        for mapping in b {
            if let Some(at) = rest.iter().position(|other| other == mapping) {
                rest.remove(at);
            }
        }
        rest
    };
    let (without, with) = (more(&seen[0].1, &seen[1].1), more(&seen[1].1, &seen[0].1));
    let differ = seen[0].0 != seen[1].0 || !without.is_empty() || !with.is_empty();
    differ.then(|| format!("{endpoint:?}: {seen:?}: {without:?} {with:?}"))
}

/// Nor, but for memory, when hidden volumes have been used, and whoever used them has left.
#[test]
fn what_was_used_tells_nothing() {
    let test = "what_was_used_tells_nothing";
    if cannot(test, &["qemu-io"]) {
        return;
    }
    let _watchdog = Watchdog::start(test, time_max());
    let seen = [Hidden::Nothing, Hidden::Busy(2)].map(|hidden| {
        let mut world = large(hidden, Endpoint::Nbd);
        let mut open = world.open(&world.own(), &[]);
        let pid = open.daemon.id();
        let before = counts(pid);
        world.traffic(&mut open, 3);
        open.clients.drain(..).for_each(|mut client| assert!(client.wait().unwrap().success()));
        let after = counts(pid);
        world.close(open, "--drop");
        [before, after]
    });
    assert_eq!(seen[0], seen[1]);
}
