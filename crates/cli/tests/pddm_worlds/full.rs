//! The disk is full: the device is a sparse file, and there is no room for all of it.

use std::fs;
use std::process::Command;

use crate::judge::{alike, cannot, not_root};
use crate::world::{Endpoint, World, play};

/// A disk of four megabytes, gone when dropped.
struct Disk(String);

impl Disk {
    fn mount(dir: &str) -> Self {
        fs::create_dir(dir).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=4M", "tmpfs", dir];
        assert!(Command::new("mount").args(options).status().unwrap().success());
        Self(dir.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", &self.0]).status();
    }
}

fn story(world: &mut World, seed: u64) {
    let disk = world.path("disk");
    let _mounted = Disk::mount(&disk);
    let device = format!("{disk}/device");
    let (endpoint, public, own) = (world.endpoint(), world.path("public"), world.own());
    world.init(&device);
    let mut open = world.open_under(&[], &device, &own, &[]);
    // A megabyte has room; what comes after has not. Each write is flushed, since when a client hears
    // of a failure otherwise is a matter of time.
    let writes = |first: u64| -> Vec<String> {
        let write = |at: u64| format!("write -P {} {}k 128k", 1 + (at + seed) % 200, at * 128);
        (first..first + 8).flat_map(|at| [write(at), "flush".to_owned()]).collect()
    };
    assert!(world.client("public", &writes(0)).status().unwrap().success());
    for export in world.hidden.busy() {
        open.clients.push(world.client(export, &writes(0)[..6]).spawn().unwrap());
    }
    let mut failed = false;
    for part in 1..4 {
        let output = world.client("public", &writes(part * 8)).output().unwrap();
        failed |= !output.status.success();
        world.heard("client", &output);
    }
    assert!(failed, "there is room for all");
    world.public(&["status", &endpoint]);
    world.public(&["sweep", &endpoint, "--public-only"]);
    assert_ne!(world.public(&["close", "--sweep", &endpoint]), Some(0));
    world.gone(open, false);
    // Nothing is lost that was flushed.
    world.public(&["check", &device, "--password-file", &public]);
    world.copy_of(&device);
    // No room for another one, and nothing is left of it.
    fs::write(format!("{disk}/rest"), vec![1; 4 << 20]).unwrap_err();
    let second = format!("{disk}/second");
    world.init(&second);
    assert!(!fs::exists(&second).unwrap());
    let with = ["--password-file", &own, "--new-password-file", &world.path("new")];
    world.public(&[&["passwd", &device][..], &with].concat());
    world.copy_of(&device);
}

#[test]
fn a_full_disk_tells_nothing() {
    let test = "a_full_disk_tells_nothing";
    if cannot(test, &["qemu-io"]) || not_root(test) {
        return;
    }
    play(test, Endpoint::Nbd, story, alike);
}
