//! PD-DM on the device of an oblivious store, and HIFS on its hidden volume: three systems, of which each
//! keeps its own promise.

use std::fs;

use crate::bench::{AsFile, Bench, SEED, count, ends, fill_database, look_at_database, sync, text};

const KEPT: &str = "Ada Byron, room 3: a broken arm.\n";
const GONE: &str = "Jane Roe, room 7: what nobody may know.\n";

#[test]
fn hifs_on_a_hidden_volume_on_an_oblivious_store() {
    let test = "hifs_on_a_hidden_volume_on_an_oblivious_store";
    let Some(bench) = Bench::new(test, &["nbdfuse", "sqlite3"]) else { return };
    let (store, key, socket) = (bench.text("store"), bench.text("key"), bench.text("socket"));
    let server = format!("unix:{}", bench.text("server"));
    ends(0, &["oram", "init", &store, "--key", &key, "--blocks", "4096"]);
    ends(0, &["oram", "serve", &store, "--listen", &server]);
    ends(0, &["oram", "export", &server, "--key", &key, "--nbd", &socket]);
    let device = match AsFile::new(bench.path("device"), &socket) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("SKIPPED: {test}: {why}");
            ends(0, &["oram", "close", &socket]);
            ends(0, &["oram", "close", &store]);
            return;
        }
    };
    let file = text(&device.file);
    bench.init(file, &[]);
    let volume = bench.open(file);
    ends(0, &["hifs", "format", volume.device(), "--seed", SEED]);
    // Nobody writes to the public volume, so hidden data goes with sweeps, and with little else.
    let sweep = || ends(0, &["pddm", "sweep", text(bench.lower.path())]);
    sweep();
    bench.mount(volume.device());
    let folder = bench.upper.path();
    for (name, line) in [("jane", GONE), ("ada", KEPT)] {
        fs::write(folder.join(name), line.repeat(1000)).unwrap();
        sync(&folder.join(name));
        sweep();
    }
    fs::remove_file(folder.join("jane")).unwrap();
    fill_database(folder);
    sweep();
    bench.umount();
    bench.close(volume);
    ends(0, &["pddm", "check", file, "--password-file", &bench.text("public")]);
    // The whole way down, to a server that begins anew, and up again.
    drop(device);
    ends(0, &["oram", "close", &socket]);
    ends(0, &["oram", "check", &server, "--key", &key]);
    ends(0, &["oram", "close", &store]);
    for entry in walk(&bench.path("store")) {
        let bytes = fs::read(entry).unwrap();
        assert_eq!((count(&bytes, KEPT), count(&bytes, GONE)), (0, 0), "the server reads it");
    }
    ends(0, &["oram", "serve", &store, "--listen", &server]);
    ends(0, &["oram", "export", &server, "--key", &key, "--nbd", &socket]);
    let device = AsFile::new(bench.path("device"), &socket).unwrap();
    let volume = bench.open(text(&device.file));
    ends(0, &["hifs", "check", volume.device()]);
    let image = volume.content();
    // One that lies across two buckets is in two places.
    assert!(count(&image, KEPT) > 900);
    assert_eq!(count(&image, GONE), 0);
    bench.mount(volume.device());
    look_at_database(folder);
    bench.umount();
    bench.close(volume);
    drop(device);
    ends(0, &["oram", "close", &socket]);
    ends(0, &["oram", "close", &store]);
}

/// All files below a folder.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = entries.map(|path| if path.is_dir() { walk(&path) } else { vec![path] });
    below.flatten().collect()
}
