//! A store whose key is sealed by a password.

use std::fs;
use std::path::Path;

use crate::bench::Bench;

#[test]
fn a_sealed_key_needs_its_password() {
    let test = "a_sealed_key_needs_its_password";
    let Some(mut bench) = Bench::at(test, None, &[]) else { return };
    let file = |name: &str, text: &str| {
        let path = bench.path(name);
        fs::write(&path, format!("{text}\n")).unwrap();
        path
    };
    let [good, bad, none] = [file("good", "a good one"), file("bad", "another"), file("none", "")];
    let init = "oram init STORE --key KEY --blocks 600";
    bench.ends(&format!("{init} --seal --password-file {none}"), 2);
    assert!(!Path::new(&bench.path("key")).exists());
    bench.ends(&format!("{init} --password-file {good}"), 0);
    let sealed = fs::read_to_string(bench.path("key")).unwrap();
    assert!(sealed.starts_with("tacita-oram-key-2 "), "{sealed}");
    bench.serve();
    let format = "privatefs format SERVER --key KEY --password-file";
    let refused = bench.ends(&format!("{format} {bad}"), 3).stderr;
    assert!(String::from_utf8(refused).unwrap().contains("password"));
    bench.ends(&format!("{format} {good}"), 0);
    let dir = bench.mount("SERVER", &format!("--password-file {good}"));
    fs::write(dir.join("file"), b"content").unwrap();
    bench.umount(&dir);

    let key = bench.path("key");
    let passwd = |line: String, code| bench.ends(&format!("oram passwd {key} {line}"), code);
    passwd(format!("--password-file {bad} --new-password-file {good}"), 3);
    passwd(format!("--password-file {good} --new-password-file {none}"), 2);
    assert_eq!(fs::read_to_string(&key).unwrap(), sealed);
    passwd(format!("--password-file {good} --new-password-file {bad}"), 0);
    bench.ends(&format!("oram status SERVER --key KEY --password-file {good}"), 3);
    bench.ends(&format!("privatefs check SERVER --key KEY --password-file {bad}"), 0);
    passwd(format!("--password-file {bad} --remove"), 0);
    bench.mount_at(&dir, "SERVER", "");
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"content");
    bench.umount(&dir);
}
