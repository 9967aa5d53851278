//! What `tacita dnefs` shows of volumes: plans.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::process::{Command, Output, Stdio};

use serde_json::Value;

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
    fail(2, &["dnefs", "plan", "--key", "24"]);
    fail(2, &["dnefs", "plan", "--node-size", "5000"]);
    fail(2, &["dnefs", "plan", "--size", "0"]);
    fail(2, &["dnefs", "plan", "--page-size", "100"]);
}
