//! Who ends leaves nothing to be waited for by others that share its anchor.

use std::io::BufReader;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tacita_clock::{Clock, System};
use tacita_oram::agreement::BUILDER;

use crate::{Bench, Served, command, tacita};

/// How long something is waited for that comes soon, on however slow a machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Whether somebody builds, as the shared anchor says.
fn has_builder(anchor: &str) -> bool {
    let Ok(agreement) = std::fs::read(Path::new(anchor).join("root")) else { return false };
    agreement[BUILDER] != [0; 16]
}

/// Others would have to wait until they notice that nobody builds.
#[test]
fn an_export_and_an_engine_that_end_leave_the_building_to_others() {
    let bench = Bench::new();
    bench.serve();
    let (anchor, engine) = (bench.path("together"), bench.path("engine"));
    let shared = format!("SERVER --key KEY --shared-anchor {anchor}");
    for (begin, end) in [
        (format!("export {shared} --nbd DISK"), "close DISK".to_owned()),
        (format!("engine {shared} --listen unix:{engine}"), format!("close {engine}")),
    ] {
        bench.ends(&begin, 0);
        let begun = System.monotonic();
        while !has_builder(&anchor) {
            assert!(System.elapsed(begun) < PATIENCE, "{begin}: nobody builds");
            System.wait(Duration::from_millis(20));
        }
        bench.ends(&end, 0);
        assert!(!has_builder(&anchor), "{begin}: it is gone, and builds still");
    }
    // It is known for what it is, and nothing that is put out takes its place.
    let info = tacita(&["info", "--json", &anchor]);
    assert!(String::from_utf8_lossy(&info.stdout).contains("clients of an oblivious store share"));
    let root = format!("{anchor}/root");
    bench.ends(&format!("trace SERVER --listen unix:{engine} --out {root}"), 2);
    assert!(std::fs::read(&root).unwrap().starts_with(b"TACITAGR"));
}

/// The second one has no socket by which it could be asked, and takes the first one's place nowhere.
#[test]
fn two_engines_with_one_key_and_anchor_are_told_apart() {
    let bench = Bench::new();
    bench.serve();
    let (anchor, key) = (bench.path("together"), bench.path("key"));
    let line = format!("engine SERVER --key KEY --shared-anchor {anchor} --listen 127.0.0.1:0");
    bench.ends(&line, 0);
    let asked = || {
        let status = tacita(&["status", "--json", &key]);
        serde_json::from_slice::<Value>(&status.stdout).unwrap()["pid"].clone()
    };
    let first = asked();
    let server = format!("unix:{}", bench.path("server"));
    let words = line.replace("SERVER", &server).replace("KEY", &key);
    let words: Vec<&str> = ["oram"].into_iter().chain(words.split(' ')).collect();
    let mut process =
        command(&[&words[..], &["--foreground"]].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(process.stderr.take().unwrap());
    let mut second = Served { process, stderr };
    let said = second.said();
    let is_first = asked() == first;
    bench.ends(&format!("close {key}"), 0);
    assert!(is_first, "the first one can be asked no more");
    assert!(said.contains("SIGTERM"), "{said}");
    assert!(second.said().contains("users are served"));
    second.stop();
}
