//! Who compares: the second reader of the format, and words.

use std::process::Command;

use crate::world::{World, by_hand};

const READER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../pddm/tests/second_reader/read_device.py");

/// Whether two copies are the same to whoever has this password; says what is not. Of so many MACs
/// one is computed.
pub(crate) fn compare(a: &str, b: &str, password: &str, macs: &str) -> Result<(), String> {
    let output = Command::new("/usr/bin/python3")
        .env("TACITA_MACS", macs)
        .args([READER, "compare", a, b, password])
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) }
}

/// All worlds have said and written the same to whoever has the public password.
pub(crate) fn alike(worlds: &[World], seed: u64) {
    alike_to("public", worlds, seed);
}

/// The same to whoever has another password.
pub(crate) fn alike_to(password: &str, worlds: &[World], seed: u64) {
    let macs = if by_hand() { "4" } else { "32" };
    let (first, others) = worlds.split_first().unwrap();
    for other in others {
        for (a, b) in first.said.iter().zip(&other.said) {
            assert_eq!(a, b, "seed {seed}: {:?}", other.hidden);
        }
        assert_eq!(first.said.len(), other.said.len());
        assert_eq!(first.log(), other.log(), "seed {seed}: {:?}", other.hidden);
        for (n, (a, b)) in first.copies.iter().zip(&other.copies).enumerate() {
            let found = compare(a, b, &first.path(password), macs);
            assert_eq!(found, Ok(()), "seed {seed}: {:?}, copy {n}", other.hidden);
        }
        assert_eq!(first.copies.len(), other.copies.len());
    }
}

/// Whether the programs are missing that a test needs; says so loudly.
pub(crate) fn cannot(test: &str, programs: &[&str]) -> bool {
    let modules = ["-c", "import argon2, cryptography"];
    let python = Command::new("/usr/bin/python3").args(modules).output();
    let mut missing: Vec<&str> = programs.to_vec();
    missing.retain(|program| Command::new(program).arg("--version").output().is_err());
    if !python.is_ok_and(|output| output.status.success()) {
        missing.push("python3 with argon2 and cryptography");
    }
    if !missing.is_empty() {
        eprintln!("SKIPPED: {test}: needs {}", missing.join(", "));
    }
    !missing.is_empty()
}

/// Whether this is not root; says so loudly.
pub(crate) fn not_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: {test}: needs root");
    }
    !root
}
