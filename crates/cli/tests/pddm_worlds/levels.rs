//! Two hidden volumes: whoever has the password of the first, too, cannot tell that there is a second.
//! (Design note, game G3.)

use crate::judge::{alike_to, cannot, compare};
use crate::world::{Endpoint, Hidden, Open, World, play_in};

/// What whoever has the password of the first hidden volume knows of: that one is written, then the
/// public one, which carries it. The second is written beside both.
fn traffic(world: &World, open: &mut Open, seed: u64) {
    world.secret_traffic(open, seed);
    let hidden: Vec<String> = (0..5)
        .map(|n| format!("write -P {} {}k 24k", 1 + (seed + n) % 200, (seed * 7 + n * 13) % 90 * 4))
        .chain(["discard 32k 16k", "flush"].map(str::to_owned))
        .collect();
    assert!(world.client("hidden", &hidden).status().unwrap().success());
    world.public_traffic(seed);
}

fn story(world: &mut World, seed: u64) {
    let device = world.path("device");
    let (endpoint, first, own) = (world.endpoint(), world.path("hidden"), world.own());
    let (new, public) = (world.path("new"), world.path("public"));
    world.init(&device);
    for (round, how) in [(0, "--drop"), (1, "--sweep")] {
        let mut open = world.open(&own, &[]);
        traffic(world, &mut open, seed * 100 + round);
        world.public(&["status", &endpoint, "--json"]);
        world.copy();
        world.close(open, how);
        world.public(&["check", &device, "--password-file", &first, "--json"]);
    }
    // Killed, with what was queued.
    let mut open = world.open(&own, &[]);
    traffic(world, &mut open, seed * 100 + 50);
    World::kill(open);
    world.public(&["check", &device, "--password-file", &first]);
    world.copy();
    // The password of the first volume, changed and back: by itself, or from above.
    for (old, to) in [(&first, &new), (&new, &first)] {
        let by = if world.hidden.volumes() == 1 { old } else { &own };
        let with = ["--volume", "hidden", "--new-password-file", to, "--password-file", by];
        assert_eq!(world.public(&[&["passwd", &device][..], &with].concat()), Some(0));
        assert_eq!(world.public(&["check", &device, "--password-file", to]), Some(0));
    }
    world.public(&["sweep", &device, "--password-file", &own]);
    world.copy();
    // Now somebody has it who does not know more.
    let open = world.open(&first, &[]);
    assert!(world.client("hidden", &["write -P 9 0 64k".to_owned()]).status().unwrap().success());
    world.public_traffic(seed * 100 + 60);
    world.public(&["status", &endpoint, "--hidden", "--json"]);
    world.public(&["sweep", &endpoint]);
    world.close(open, "--sweep");
    for password in [&first, &public] {
        world.public(&["check", &device, "--password-file", password]);
    }
    world.copy();
}

#[test]
fn a_second_hidden_volume_shows_nobody() {
    let test = "a_second_hidden_volume_shows_nobody";
    if cannot(test, &["qemu-io"]) {
        return;
    }
    let kinds = [Hidden::Idle(1), Hidden::Above, Hidden::Idle(2)];
    play_in(&kinds, test, Endpoint::Nbd, story, |worlds, seed| {
        alike_to("hidden", worlds, seed);
        // The judge sees what there is to see.
        let (a, b) = (&worlds[0].copies[0], &worlds[0].copies[1]);
        compare(a, b, &worlds[0].path("hidden"), "1000").unwrap_err();
    });
}
