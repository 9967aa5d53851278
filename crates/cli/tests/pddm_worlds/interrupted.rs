//! Commands that are killed in the middle of what they write, at the same system call in all worlds.

use tacita_testkit::strace::{Watched, cannot_trace};

use crate::judge::{alike, cannot};
use crate::world::{Endpoint, World, by_hand, play};

/// What ends a process when one of its threads comes to a system call for the so-manieth time.
fn killer(call: &str, time: u32) -> Vec<String> {
    let inject = format!("inject={call}:error=EIO:signal=KILL:when={time}");
    ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]
        .map(str::to_owned)
        .to_vec()
}

fn killed(call: &str, time: u32, arguments: &[&str]) {
    let killer = killer(call, time);
    let killer: Vec<&str> = killer.iter().map(String::as_str).collect();
    let output = World::run_under(&killer, arguments);
    assert!(!output.status.success(), "{arguments:?} is not killed at {call} {time}");
}

/// Which of these passwords opens the device, to whoever has to know; a check that it opens may find
/// that one superblock is older than the other.
fn opening<'a>(device: &str, passwords: &[&'a String]) -> &'a String {
    let checked = |file: &str| World::run(&["check", device, "--password-file", file]).status;
    let opens = |file: &&&String| matches!(checked(file).code(), Some(0 | 1));
    passwords.iter().find(opens).expect("one of them opens it")
}

fn passwords(world: &mut World, _: u64) {
    let device = world.path("device");
    let (own, new, other) = (world.own(), world.path("new"), world.path("other"));
    world.init(&device);
    // Flushes: of a unit, of the closing one, of each superblock. Writes: of units, of superblocks.
    let all = [("fdatasync", 1), ("fdatasync", 2), ("fdatasync", 3), ("fdatasync", 4)];
    let some = if by_hand() { &all[..] } else { &all[2..3] };
    for (call, time) in some {
        let with = ["--password-file", &own, "--new-password-file", &new];
        killed(call, *time, &[&["passwd", &device][..], &with].concat());
        let found = opening(&device, &[&new, &own]);
        // As somebody finds it who has the password of the public volume.
        let public = if world.hidden.volumes() == 0 { found } else { &world.path("public") };
        world.public(&["check", &device, "--password-file", public]);
        for (old, new) in [(found, &other), (&other, &own)] {
            let with = ["--password-file", old, "--new-password-file", new];
            assert_eq!(world.public(&[&["passwd", &device][..], &with].concat()), Some(0));
        }
        world.copy();
    }
}

fn others(world: &mut World, seed: u64) {
    let device = world.path("device");
    let (public, own, endpoint) = (world.path("public"), world.own(), world.endpoint());
    world.init(&device);
    let mut open = world.open(&own, &[]);
    world.traffic(&mut open, seed * 100 + 7);
    world.close(open, "--drop");
    // A sweep, at its third run of units; the next goes on where it was.
    let mut sweep = vec!["sweep", &device, "--password-file", &own];
    if world.hidden.volumes() == 0 {
        // What is hidden is not to be destroyed.
        sweep.push("--public-only");
    }
    killed("pwritev", 3, &sweep);
    world.public(&["check", &device, "--password-file", &public, "--json"]);
    world.copy();
    world.public(&sweep);
    // A device that has grown gets a superblock when it is opened: killed at that.
    let file = std::fs::OpenOptions::new().write(true).open(&device).unwrap();
    file.set_len(13 << 20).unwrap();
    drop(file);
    for call in ["pwrite64", "fdatasync"] {
        killed(
            call,
            1,
            &["open", &device, "--nbd", &endpoint, "--foreground", "--password-file", &own],
        );
        world.public(&["check", &device, "--password-file", &public]);
    }
    // `close`, at the second run of its sweep.
    let mut open = world.open(&own, &[]);
    world.traffic(&mut open, seed * 100 + 8);
    let pid = open.daemon.id().to_string();
    let attached = Watched::attach(&pid, "pwritev", "error=EIO:signal=KILL:when=2");
    world.public(&["close", "--sweep", &endpoint]);
    drop(attached);
    world.gone(open, false);
    world.public(&["check", &device, "--password-file", &public, "--json"]);
    world.copy();
}

#[test]
fn a_change_of_password_that_is_killed() {
    let test = "a_change_of_password_that_is_killed";
    if cannot(test, &[]) || cannot_trace(test) {
        return;
    }
    play(test, Endpoint::Nbd, passwords, alike);
}

#[test]
fn sweep_open_and_close_that_are_killed() {
    let test = "sweep_open_and_close_that_are_killed";
    if cannot(test, &["qemu-io"]) || cannot_trace(test) {
        return;
    }
    play(test, Endpoint::Nbd, others, alike);
}
