//! Passwords that are typed.

use std::fs;

use tacita_testkit::{Terminal, skip_without};

use crate::bench::{Bench, expect, tacita};

/// Shows `check` a password, and returns its exit code and what it said.
fn check(bench: &Bench, keys: &[u8]) -> (Option<i32>, String) {
    let check = format!("{} pddm check {}", env!("CARGO_BIN_EXE_tacita"), bench.path("device"));
    let mut terminal = Terminal::run(&check);
    terminal.until("Password: ");
    assert!(terminal.type_in(keys));
    let (ended, said) = terminal.end();
    // However soon it is answered.
    let keys = String::from_utf8_lossy(keys);
    assert!(keys.len() < 2 || !said.contains(keys.trim_end()), "it is shown: {said}");
    (ended.code(), said)
}

/// All bytes that are no UTF-8 would be typed as the same character, so that one password opened what another
/// was meant for, and a file with those bytes did not.
#[test]
fn a_password_that_is_typed_is_whole_or_refused() {
    let test = "a_password_that_is_typed_is_whole_or_refused";
    if skip_without(test, &["script"]) {
        return;
    }
    let bench = Bench::new(test);
    let (device, public) = (bench.path("device"), bench.path("public"));
    fs::write(&public, "f\u{fffd}r alle\n").unwrap();
    let init = ["pddm", "init", &device, "--size", "16M", "--heartbeat", "0"];
    expect(0, &tacita(&[&init[..], &["--password-file", &public]].concat()));
    // The bytes of other alphabets: of one letter, and of one that takes the next two along.
    for keys in [&b"f\xfcr alle\n"[..], b"f\xf6r alle\n", b"f\xe4hr alle\n", b"f\xfar alle\n"] {
        let (code, said) = check(&bench, keys);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("not UTF-8"), "{said}");
    }
    let long = [&[b'p'; 4097][..], b"\n"].concat();
    let (code, said) = check(&bench, &long);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("more than 4096 bytes"), "{said}");
    let (code, said) = check(&bench, b"\x04");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no password was typed"), "{said}");
    fs::write(&public, "f\u{fc}r alle\n").unwrap();
    expect(0, &tacita(&[&init[..], &["--force", "--password-file", &public]].concat()));
    assert_eq!(check(&bench, "f\u{fc}r alle\n".as_bytes()).0, Some(0));
}
