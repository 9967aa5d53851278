//! Every command, over NBD.

use crate::judge::{alike, cannot, compare};
use crate::world::{Endpoint, World, play};

/// The whole story.
fn story(world: &mut World, seed: u64) {
    let device = world.path("device");
    let (endpoint, public) = (world.endpoint(), world.path("public"));
    let (own, new) = (world.own(), world.path("new"));
    world.init(&device);
    world.public(&["check", &device, "--password-file", &public]);
    for round in 0..2 {
        let mut open = world.open(&own, &[]);
        world.traffic(&mut open, seed * 100 + round);
        world.public(&["status", &endpoint, "--json"]);
        // No flag, no terminal: nothing is done.
        world.public(&["close", &endpoint]);
        world.close(open, if round == 1 { "--sweep" } else { "--drop" });
    }
    world.copy();
    for (old, new) in [(&own, &new), (&new, &own)] {
        let with = ["--password-file", old, "--new-password-file", new];
        world.public(&[&["passwd", &device][..], &with].concat());
    }
    // Killed, with hidden requests under way.
    let mut open = world.open(&own, &["--hidden-flush", "durable"]);
    world.traffic(&mut open, seed * 100 + 50);
    World::kill(open);
    world.public(&["check", &device, "--password-file", &public, "--json"]);
    // A while with the public password.
    let open = world.open(&public, &["--public-only"]);
    let commands = ["write -P 9 0 8k".to_owned(), "flush".to_owned()];
    assert!(world.client("public", &commands).status().unwrap().success());
    world.public(&["status", &endpoint]);
    world.public(&["sweep", &endpoint]);
    world.close(open, "--drop");
    world.copy();
    let mut open = world.open(&own, &[]);
    world.traffic(&mut open, seed * 100 + 60);
    world.public(&["sweep", &endpoint, "--public-only"]);
    world.close(open, "--drop");
    world.public(&["sweep", &device, "--password-file", &own, "--public-only"]);
    world.public(&["check", &device, "--password-file", &public]);
    world.copy();
}

#[test]
fn no_command_tells_the_worlds_apart() {
    let test = "no_command_tells_the_worlds_apart";
    if cannot(test, &["qemu-io"]) {
        return;
    }
    play(test, Endpoint::Nbd, story, |worlds, seed| {
        alike(worlds, seed);
        // The judge sees what there is to see.
        let (a, b) = (&worlds[0].copies[0], &worlds[0].copies[1]);
        compare(a, b, &worlds[0].path("public"), "1000").unwrap_err();
    });
}

/// Refusals of every command, in the same words whatever is hidden.
#[test]
fn refusals_are_alike() {
    let test = "refusals_are_alike";
    if cannot(test, &[]) {
        return;
    }
    let story = |world: &mut World, _: u64| {
        let device = world.path("device");
        let (endpoint, public, new) = (world.endpoint(), world.path("public"), world.path("new"));
        let (own, other) = (world.own(), world.path("other"));
        std::fs::write(world.path("empty"), "\n").unwrap();
        let empty = world.path("empty");
        world.init(&device);
        world.init(&device);
        world.public(&["close", "--drop", &endpoint]);
        world.public(&["status", &endpoint]);
        world.public(&["check", &device, "--password-file", &other]);
        world.public(&["check", &device, "--repair", "--password-file", &public]);
        world.public(&["open", &device, "--nbd", &endpoint, "--password-file", &other]);
        world.public(&["sweep", &device, "--password-file", &public]);
        let passwd = ["passwd", &device, "--password-file"];
        for (old, to) in [(&other, &new), (&public, &empty), (&public, &public), (&own, &public)] {
            world.public(&[&passwd[..], &[old, "--new-password-file", to]].concat());
        }
        for volume in ["hidden2", "hidden9", "nobody"] {
            let with = [&public, "--new-password-file", &new, "--volume", volume];
            world.public(&[&passwd[..], &with].concat());
        }
        let open = world.open(&own, &[]);
        let second = ["open", &device, "--nbd", &endpoint, "--password-file", &public];
        world.public(&second);
        world.public(&["sweep", &device, "--password-file", &public]);
        world.public(&["check", &device, "--password-file", &public]);
        world.close(open, "--drop");
    };
    play(test, Endpoint::Nbd, story, alike);
}
