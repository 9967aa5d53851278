//! Under limits of the system.

use std::process::Command;

use tacita_testkit::skip_without;

use crate::bench::Bench;

/// Others would wait for it until they notice that it is gone.
#[test]
fn a_mount_that_has_too_few_descriptors_is_told_and_signed_off() {
    let test = "a_mount_that_has_too_few_descriptors_is_told_and_signed_off";
    if skip_without(test, &["prlimit"]) {
        return;
    }
    let Some(bench) = Bench::at(test, None, &[]) else { return };
    bench.make(600, 64);
    let dir = bench.folder.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let mount = format!("privatefs mount SERVER {} --key KEY --clients 1", dir.display());
    let is_enough = |limit: &u32| {
        let whole = bench.command(&mount);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={limit}")).arg(whole.get_program()).args(whole.get_args());
        let output = limited.output().unwrap();
        if output.status.success() {
            return true;
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{limit}: {said}");
        assert!(said.contains("`ulimit -n`"), "{limit}: {said}");
        let info = bench.facts("privatefs info SERVER --key KEY");
        assert_eq!(
            (&info["mounts"], &info["is_somebodys_turn"]),
            (&0.into(), &false.into()),
            "{limit}: {said}"
        );
        false
    };
    assert!((6..=100).any(|limit| is_enough(&limit)));
    bench.umount(&dir);
}
