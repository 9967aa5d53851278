//! What `tacita dnefs` shows of volumes: plans and maps.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tacita_testkit::{MountGuard, skip_without_fuse};

fn tacita(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tacita"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn succeed(arguments: &[&str]) -> String {
    let output = tacita(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "tacita {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn facts(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeed(&[arguments, &["--json"]].concat())).unwrap()
}

fn fail(code: i32, arguments: &[&str]) {
    assert_eq!(tacita(arguments).status.code(), Some(code), "tacita {arguments:?}");
}

#[test]
fn a_plan_has_the_papers_table_and_what_format_makes() {
    let paper = ["dnefs", "plan", "--key", "16", "--node-size", "2K,16K,128K,1M,8M"];
    let text = succeed(&paper);
    let table: Vec<_> = text.lines().skip(2).take(5).collect();
    let column = |number: usize| -> Vec<&str> {
        table.iter().map(|line| line.split_whitespace().nth(number + 1).unwrap()).collect()
    };
    assert_eq!(column(1), ["64.000", "8.000", "1.000", "0.125", "0.016"]);
    assert_eq!(column(2), ["0.00", "0.11", "0.98", "7.98", "63.98"]);

    let folder = tempfile::tempdir().unwrap();
    let volume = folder.path().join("volume");
    let volume = volume.to_str().unwrap();
    let chip = ["--size", "32M", "--page-size", "4K", "--pages-per-block", "32"];
    for (node, key) in [("4K", "32"), ("512", "16"), ("32K", "32")] {
        let shape = [&chip[..], &["--node-size", node, "--key", key]].concat();
        let plan = facts(&[&["dnefs", "plan"], &shape[..]].concat());
        succeed(&[&["dnefs", "format", volume, "--force"], &shape[..]].concat());
        let info = facts(&["dnefs", "info", volume]);
        assert_eq!(plan["nodes"][0]["key_blocks"], info["key_blocks"]);
        for name in ["erase_blocks", "erase_block_bytes", "page_bytes"] {
            assert_eq!(plan[name], info[name], "{name}");
        }
    }
}

#[test]
fn a_plan_without_nodes_has_usual_ones_and_absurd_ones_are_refused() {
    let plan = facts(&["dnefs", "plan"]);
    let rows = plan["nodes"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["node_bytes"] == 4096 && row["key_blocks"].is_u64()));
    assert!(rows.iter().any(|row| row["node_bytes"] == 8 << 20 && row["key_blocks"].is_null()));
    // Of one that is too short it is not said that it is too long.
    let plan = ["dnefs", "plan", "--node-size", "256"];
    assert!(facts(&plan)["nodes"][0]["keys"].is_null());
    assert!(succeed(&plan).contains("512 bytes to half an erase block"));
    // What is refused is what was given.
    let refused = tacita(&["dnefs", "plan", "--page-size", "16G"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("17179869184 bytes"), "{said}");
    fail(2, &["dnefs", "plan", "--key", "24"]);
    fail(2, &["dnefs", "plan", "--node-size", "5000"]);
    fail(2, &["dnefs", "plan", "--size", "0"]);
    fail(2, &["dnefs", "plan", "--page-size", "100"]);
}

/// A volume of 32 MiB at `path`.
fn format(path: &Path, more: &[&str]) -> String {
    let path = path.to_str().unwrap().to_owned();
    succeed(&[&["dnefs", "format", &path, "--size", "32M"], more].concat());
    path
}

fn list<'v>(facts: &'v Value, name: &str) -> &'v Vec<Value> {
    facts[name].as_array().unwrap()
}

fn sum(facts: &[Value], name: &str) -> u64 {
    facts.iter().map(|fact| fact[name].as_u64().unwrap()).sum()
}

/// What a map says in total is what its parts say, and what `info` says.
fn agrees_with_info(map: &Value, volume: &str) {
    let info = facts(&["dnefs", "info", volume]);
    let blocks = list(map, "blocks");
    for (found, wanted) in [
        (blocks.len(), "erase_blocks"),
        (list(map, "key_blocks").len(), "key_blocks"),
        (list(map, "physical_blocks").len(), "physical_blocks"),
    ] {
        assert_eq!(info[wanted], found, "{wanted}");
    }
    for name in ["erase_block_bytes", "erases", "erases_most", "bad_blocks"] {
        assert_eq!(map[name], info[name], "{name}");
    }
    assert_eq!(info["erases"], sum(list(map, "physical_blocks"), "erases"));
    let roles = map["roles"].as_object().unwrap();
    for (role, count) in roles {
        let there = blocks.iter().filter(|block| block["role"] == role.as_str()).count();
        assert_eq!(*count, there, "{role}");
    }
    assert_eq!((&roles["superblock"], &roles["roots"]), (&2.into(), &2.into()));
    assert_eq!(roles["keys"], info["key_blocks"]);
    for name in ["used", "fresh", "to_purge"] {
        assert_eq!(map["keys"][name], sum(list(map, "key_blocks"), name), "{name}");
    }
}

/// Parses a picture as XML; how many rectangles of a class it has besides the legend.
fn rectangles(svg: &Path, class: &str) -> usize {
    let script = "import sys, xml.etree.ElementTree as tree\n\
                  found = [r.get('class', '').split() for r in tree.parse(sys.argv[1]).iter()\n\
                           if r.tag.endswith('}rect')]\n\
                  print(sum(sys.argv[2] in c and 'legend' not in c for c in found))";
    let output = Command::new("python3").args(["-c", script]).arg(svg).arg(class).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn a_map_of_a_new_volume_agrees_with_info_and_needs_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    fs::write(&password, "open\n").unwrap();
    let with = ["--password-file", password.to_str().unwrap()];
    let volume = format(&folder.path().join("volume"), &with);
    let map = facts(&[&["dnefs", "map", &volume], &with[..]].concat());
    agrees_with_info(&map, &volume);
    assert_eq!(map["keys"]["to_purge"], 0);
    assert_eq!(map["roles"]["content"], 0);
    assert_eq!(map["roles"]["stale"], 0);
    fs::write(&password, "other\n").unwrap();
    fail(3, &[&["dnefs", "map", &volume], &with[..]].concat());
    fail(4, &["dnefs", "map", password.to_str().unwrap()]);
}

#[test]
fn a_map_shows_where_content_and_keys_lie() {
    let test = "a_map_shows_where_content_and_keys_lie";
    if skip_without_fuse(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let volume = format(&folder.path().join("volume"), &["--compression", "none"]);
    let guard = MountGuard::new().unwrap();
    let dir = guard.path().to_str().unwrap();
    succeed(&["dnefs", "mount", &volume, dir, "--purge-every", "0"]);
    fs::write(guard.join("file"), vec![7; 4 << 20]).unwrap();
    fail(5, &["dnefs", "map", &volume]);
    succeed(&["sync", dir]);
    let copy = folder.path().join("copy");
    fs::copy(&volume, &copy).unwrap();
    succeed(&["umount", dir]);

    let map = facts(&["dnefs", "map", &volume]);
    agrees_with_info(&map, &volume);
    let live = sum(list(&map, "blocks"), "live_bytes");
    assert!((4 << 20..5 << 20).contains(&live), "{live}");
    assert!((33..40).contains(&map["roles"]["content"].as_u64().unwrap()), "{}", map["roles"]);
    assert!(map["keys"]["used"].as_u64() > Some(1024));
    // The receipt of the last purge has a key that is needed until the next.
    assert_eq!((&map["keys"]["to_purge"], &map["was_unmounted"]), (&1.into(), &true.into()));
    // The copy was in use: whatever no node has may have been used.
    let map = facts(&["dnefs", "map", copy.to_str().unwrap()]);
    assert_eq!((&map["keys"]["fresh"], &map["was_unmounted"]), (&0.into(), &false.into()));
    assert!(map["keys"]["to_purge"].as_u64() > Some(1024));

    let svg = folder.path().join("map.svg");
    let map = facts(&["dnefs", "map", &volume, "--svg", svg.to_str().unwrap()]);
    for role in ["superblock", "roots", "keys", "stale", "free"] {
        assert_eq!(map["roles"][role], rectangles(&svg, role), "{role}");
    }
    let nodes = ["content", "metadata", "checkpoint"].map(|role| &map["roles"][role]);
    let nodes: u64 = nodes.iter().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(nodes, rectangles(&svg, "live") as u64);
    let shades = (0..8).map(|shade| rectangles(&svg, &format!("w{shade}")));
    assert_eq!(shades.sum::<usize>(), list(&map, "physical_blocks").len());
    let shown = succeed(&["dnefs", "map", &volume]);
    assert!(shown.contains("ssrrkk") && shown.contains("CCCCCCCC"), "{shown}");
}
