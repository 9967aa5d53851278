//! Every command, as files of a folder: fio over a loop device on the public file, file systems on
//! loop devices on the hidden ones.

use tacita_testkit::skip_without_fuse;

use crate::clients::{Loop, fio};
use crate::judge::{alike, cannot, not_root};
use crate::world::{Endpoint, World, play};

fn story(world: &mut World, seed: u64) {
    let device = world.path("device");
    let (endpoint, public, own) = (world.endpoint(), world.path("public"), world.own());
    world.init(&device);
    for round in 0..2 {
        let mut open = world.open(&own, &[]);
        world.hidden_file_systems(&mut open);
        {
            let used = Loop::new(&format!("{endpoint}/public"));
            let done = fio(&used.0, seed * 10 + round);
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            world.public(&["status", &endpoint]);
            // Whoever uses the public file keeps it open.
            world.public(&["close", "--drop", &endpoint]);
        }
        if round == 0 {
            world.public(&["sweep", &endpoint, "--public-only"]);
        }
        world.close(open, if round == 0 { "--drop" } else { "--sweep" });
        if round == 1 {
            world.public(&["check", &device, "--password-file", &public]);
            world.copy();
        }
    }
    // Killed while files are in use; the mount is cleared.
    let mut open = world.open(&own, &["--hidden-flush", "durable"]);
    world.hidden_file_systems(&mut open);
    {
        let used = Loop::new(&format!("{endpoint}/public"));
        assert!(fio(&used.0, seed * 10 + 5).status.success());
    }
    World::kill(open);
    let cleared = std::process::Command::new("umount").args(["--lazy", &endpoint]).status();
    assert!(cleared.unwrap().success());
    world.public(&["check", &device, "--password-file", &public]);
    world.copy();
}

#[test]
fn no_folder_tells_the_worlds_apart() {
    let test = "no_folder_tells_the_worlds_apart";
    let programs = ["fio", "losetup", "unshare", "umount"];
    if cannot(test, &programs) || not_root(test) || skip_without_fuse(test) {
        return;
    }
    play(test, Endpoint::Folder, story, alike);
}
