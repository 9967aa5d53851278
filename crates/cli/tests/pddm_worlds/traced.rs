//! Order, lengths and flushes of what the daemon writes, as the system sees it.

use std::fmt::Write;
use std::fs;

use tacita_testkit::strace::cannot_trace;

use crate::judge::cannot;
use crate::world::{Endpoint, Hidden, World, play};

const CALLS: &str = "trace=write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync_file_range,\
                     fallocate,ftruncate,io_uring_enter";

/// A session under trace: what was written to the device, and where.
fn story(world: &mut World, seed: u64) {
    let device = world.path("device");
    let (endpoint, own, trace) = (world.endpoint(), world.own(), world.path("trace"));
    world.init(&device);
    let strace = ["strace", "-f", "-y", "-s", "0", "-o", &trace, "-e", CALLS];
    for (session, how) in [["--hidden-flush", "ordered"], ["--hidden-flush", "durable"]]
        .iter()
        .zip(["--sweep", "--drop"])
    {
        let mut open = world.open_under(&strace, &device, &own, session);
        world.traffic(&mut open, seed * 100 + 21);
        world.public(&["sweep", &endpoint, "--public-only"]);
        world.traffic(&mut open, seed * 100 + 22);
        world.close(open, how);
        let text = fs::read_to_string(&trace).unwrap();
        world.said.push(requests(&text, &device));
    }
}

/// The requests to a device, in the order in which they were made.
fn requests(trace: &str, device: &str) -> String {
    let file = format!("<{device}>");
    let mut requests = String::new();
    for line in trace.lines().filter(|line| line.contains(&file)) {
        // `PID call(FD<FILE>, ""..., length, offset) = result`, or an end that comes later.
        let (_, call) = line.split_once(' ').unwrap();
        let (name, rest) = call.trim_start().split_once('(').unwrap();
        let arguments = rest.split_once(&file).unwrap().1;
        let arguments = arguments.split([')', '<']).next().unwrap();
        writeln!(requests, "{name}{}", arguments.trim_end()).unwrap();
    }
    requests
}

#[test]
fn the_daemon_writes_the_same() {
    let test = "the_daemon_writes_the_same";
    if cannot(test, &["qemu-io"]) || cannot_trace(test) {
        return;
    }
    play(test, Endpoint::Nbd, story, |worlds, seed| {
        let (first, others) = worlds.split_first().unwrap();
        assert_eq!(first.hidden, Hidden::Nothing);
        let mut lines = first.said.iter().flat_map(|said| said.lines());
        assert!(
            lines.any(|line| line.starts_with("pwritev, ")),
            "nothing is traced: {:?}",
            first.said
        );
        assert!(lines.any(|line| line == "fdatasync"), "{:?}", first.said);
        for other in others {
            assert_eq!(first.said, other.said, "seed {seed}: {:?}", other.hidden);
        }
    });
}
