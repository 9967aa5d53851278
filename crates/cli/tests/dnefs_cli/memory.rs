//! The memory of the daemon: after a purge no key of a deleted node is in it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::bench::{Bench, Mounted, status_of, succeed, tacita};

/// All memory of a process that can be written to, as far as it may be read.
fn memory_of(process: i64, to: &Path) -> std::io::Result<()> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let memory = File::open(format!("/proc/{process}/mem"))?;
    let mut all = Vec::new();
    for mapping in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[v")) {
        let range = mapping.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = (number(range.0), number(range.1));
        // A page that was never touched is not there.
        for at in (start..end).step_by(4096) {
            let mut page = [0; 4096];
            if memory.read_exact_at(&mut page, at).is_ok() && page != [0; 4096] {
                all.extend(page);
            }
        }
    }
    fs::write(to, all)
}

fn audit(bench: &Bench, after: &str, memory: &Path) -> serde_json::Value {
    let (before, memory) = (bench.text("before"), memory.to_str().unwrap());
    let words = ["dnefs", "audit", "--before", &before, "--after", after, "--memory", memory];
    let output = tacita(&[&words[..], &["--json"]].concat());
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(found["holds"] != true)), "{found}");
    found
}

#[test]
fn no_key_of_a_deleted_node_is_in_memory_after_a_purge() {
    let test = "no_key_of_a_deleted_node_is_in_memory_after_a_purge";
    let mounted = Bench::mounted(test, &[], &["--purge-every", "0"]);
    let Some(Mounted { bench, volume, guard, dir }) = mounted else { return };
    let dir = dir.as_str();
    fs::write(guard.join("kept"), "kept".repeat(5000)).unwrap();
    for number in 0..20 {
        fs::write(guard.join(format!("secret {number}")), "secret".repeat(5000)).unwrap();
    }
    succeed(&["sync", dir]);
    let process = status_of(dir)["pid"].as_i64().unwrap();
    let (during, after) = (bench.path("during"), bench.path("memory"));
    for number in 0..20 {
        fs::read(guard.join(format!("secret {number}"))).unwrap();
        fs::remove_file(guard.join(format!("secret {number}"))).unwrap();
    }
    bench.copy_at_rest(&volume, "copy");
    bench.dump(&bench.text("copy"), "before");
    if let Err(e) = memory_of(process, &during) {
        eprintln!("SKIPPED: {test}: the memory of the daemon: {e}");
        succeed(&["umount", dir]);
        return;
    }
    succeed(&["dnefs", "purge", dir]);
    memory_of(process, &after).unwrap();
    bench.copy_at_rest(&volume, "copy");
    let dump = bench.dump(&bench.text("copy"), "after");
    assert!(fs::read(guard.join("kept")).is_ok());
    succeed(&["umount", dir]);
    let found = audit(&bench, &dump, &during);
    assert!(found["recoverable_count"].as_u64() > Some(100), "before the purge: {found}");
    let found = audit(&bench, &dump, &after);
    assert!(found["holds"] == true && found["deleted"].as_u64() > Some(100), "{found}");
}
