//! `close`: the same steps, words and exit code whatever is hidden, and whoever uses it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tacita_block::BlockDevice;
use tacita_pddm::{Options, Session, Unlock};
use tacita_secret::Password;
use tacita_testkit::{MountGuard, skip_without_fuse};

use crate::bench::{Bench, expect, tacita};

/// A device in either world, as files of a folder; what its owner opens it with.
fn worlds(test: &str, story: impl Fn(&Bench, &str, bool) -> String) {
    let seen = [false, true].map(|hides| {
        let bench = Bench::new(test);
        let hidden: &[&str] = if hides { &["hidden"] } else { &[] };
        bench.init("16M", hidden, &["--heartbeat", "0"]);
        let guard = MountGuard::new().unwrap();
        let dir = guard.path().to_str().unwrap();
        let own = if hides { "hidden" } else { "public" };
        expect(0, &bench.open(own, &["--fuse", dir]));
        let said = story(&bench, dir, hides).replace(dir, "DIR");
        let check =
            ["pddm", "check", &bench.path("device"), "--password-file", &bench.path("public")];
        said + &expect(0, &tacita(&check)).replace(&bench.path(""), "")
    });
    assert_eq!(seen[0], seen[1]);
}

fn file(dir: &str, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(format!("{dir}/{name}")).unwrap()
}

/// Whoever uses a hidden file is cut off: the folder closes as if nobody did.
#[test]
fn a_hidden_file_in_use_is_cut_off() {
    let test = "a_hidden_file_in_use_is_cut_off";
    if skip_without_fuse(test) {
        return;
    }
    worlds(test, |_, dir, hides| {
        let public = file(dir, "public");
        public.write_all_at(&[7; 4096], 0).unwrap();
        public.sync_all().unwrap();
        drop(public);
        let used = hides.then(|| file(dir, "hidden"));
        if let Some(used) = &used {
            used.write_all_at(&[8; 4096], 0).unwrap();
        }
        let said = expect(0, &tacita(&["pddm", "close", "--drop", dir]));
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "it is no mount any more");
        if let Some(used) = &used {
            used.write_all_at(&[9; 4096], 0).and_then(|()| used.sync_all()).unwrap_err();
        }
        said
    });
}

/// `tacita umount` does the same.
#[test]
fn to_unmount_is_to_close() {
    let test = "to_unmount_is_to_close";
    if skip_without_fuse(test) {
        return;
    }
    worlds(test, |_, dir, hides| {
        let used = hides.then(|| file(dir, "hidden"));
        if let Some(used) = &used {
            used.write_all_at(&[8; 4096], 0).unwrap();
        }
        let public = file(dir, "public");
        let refused = expect(5, &tacita(&["umount", dir]));
        assert!(refused.contains("/public: in use"), "{refused}");
        public.write_all_at(&[7; 4096], 0).unwrap();
        public.sync_all().unwrap();
        drop(public);
        let said = expect(0, &tacita(&["umount", dir]));
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "it is no mount any more");
        if let Some(used) = &used {
            used.write_all_at(&[9; 4096], 0).and_then(|()| used.sync_all()).unwrap_err();
        }
        refused + &said
    });
}

/// `close` returns when the daemon is gone, however long it takes for that: then the device is free.
#[test]
fn to_close_is_to_wait_for_the_end() {
    let test = "to_close_is_to_wait_for_the_end";
    let traced = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    if !traced.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: {test}: strace is not installed, or may not trace");
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &[], &["--heartbeat", "0"]);
    let (device, socket) = (bench.path("device"), bench.path("socket"));
    // Every thread that ends the process takes its time.
    let slow = "inject=exit_group:delay_enter=2000000";
    let mut daemon = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=exit_group", "-e", slow])
        .args([env!("CARGO_BIN_EXE_tacita"), "pddm", "open", &device, "--nbd", &socket])
        .args(["--foreground", "--password-file", &bench.path("public")])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while tacita(&["pddm", "status", &socket]).status.code() != Some(0) {
        std::thread::sleep(Duration::from_millis(20));
    }
    expect(0, &tacita(&["pddm", "close", "--drop", &socket]));
    tacita_block::FileDevice::open(&device, tacita_block::Access::ReadWrite, 4096).unwrap();
    assert!(daemon.wait().unwrap().success());
}

/// Whoever uses the public file keeps the folder open, and nothing has been done: in both worlds.
#[test]
fn a_public_file_in_use_is_left_alone() {
    let test = "a_public_file_in_use_is_left_alone";
    if skip_without_fuse(test) {
        return;
    }
    worlds(test, |_, dir, hides| {
        let public = file(dir, "public");
        let mut used = hides.then(|| file(dir, "hidden"));
        let refused = expect(5, &tacita(&["pddm", "close", "--sweep", dir]));
        assert!(refused.contains("/public: in use"), "{refused}");
        public.write_all_at(&[7; 4096], 0).unwrap();
        public.sync_all().unwrap();
        if let Some(used) = &mut used {
            used.write_all(&[8; 4096]).unwrap();
        }
        drop(public);
        refused + &expect(0, &tacita(&["pddm", "close", "--sweep", dir]))
    });
}

/// What is mounted over a folder keeps it open, and nothing has been done: the mount would stay, dead.
#[test]
fn a_covered_folder_is_left_alone() {
    let test = "a_covered_folder_is_left_alone";
    if skip_without_fuse(test) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: a mount over it needs root");
        return;
    }
    worlds(test, |_, dir, _| {
        let over = Command::new("mount").args(["-t", "tmpfs", "none", dir]).status();
        assert!(over.unwrap().success());
        let refused = tacita(&["pddm", "close", "--drop", dir]);
        assert!(Command::new("umount").arg(dir).status().unwrap().success());
        let said = expect(5, &refused);
        assert!(said.contains("another file system is mounted over it"), "{said}");
        file(dir, "public").write_all_at(&[7; 4096], 0).unwrap();
        said + &expect(0, &tacita(&["pddm", "close", "--drop", dir]))
    });
}

/// What was refused to two who asked at once is done neither when the file is free nor by a signal.
#[test]
fn what_was_refused_is_not_done_later() {
    let test = "what_was_refused_is_not_done_later";
    if skip_without_fuse(test) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &[], &["--heartbeat", "0"]);
    let guard = MountGuard::new().unwrap();
    let dir = guard.path().to_str().unwrap();
    let (device, password) = (bench.path("device"), bench.path("public"));
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_tacita"))
        .args(["pddm", "open", &device, "--fuse", dir, "--foreground"])
        .args(["--password-file", &password])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    while tacita(&["pddm", "status", dir]).status.code() != Some(0) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let public = file(dir, "public");
    std::thread::scope(|scope| {
        let closes = [(); 2].map(|()| scope.spawn(|| tacita(&["pddm", "close", "--sweep", dir])));
        for close in closes {
            assert!(expect(5, &close.join().unwrap()).contains("nothing has been changed"));
        }
    });
    drop(public);
    // Long enough for a daemon that still has something to do.
    std::thread::sleep(Duration::from_secs(1));
    expect(0, &tacita(&["pddm", "status", dir]));
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    let check = ["pddm", "check", &device, "--json", "--password-file", &password];
    let facts: serde_json::Value = serde_json::from_str(&expect(0, &tacita(&check))).unwrap();
    assert_eq!(facts["written"], 2, "it was swept");
}

/// Where a sweep was interrupted shortly before its end, `--sweep` goes a whole round: the rest of that one
/// has no room for what waits.
#[test]
fn what_waits_is_swept_after_a_sweep_that_was_interrupted() {
    let test = "what_waits_is_swept_after_a_sweep_that_was_interrupted";
    if skip_without_fuse(test) {
        return;
    }
    let bench = Bench::new(test);
    bench.init("16M", &["hidden"], &["--heartbeat", "0"]);
    {
        let path = bench.path("device");
        let device = tacita_block::FileDevice::open(&path, tacita_block::Access::ReadWrite, 4096);
        let device: Arc<dyn BlockDevice> = Arc::new(device.unwrap());
        let password = Password::new(b"the hidden password".to_vec());
        let session = Session::open(&device, Unlock::Password(&password), Options::default());
        let session = session.unwrap();
        assert!(!session.sweep(&mut |done, units| done + 8 < units).unwrap());
        session.close().unwrap();
    }
    let guard = MountGuard::new().unwrap();
    let dir = guard.path().to_str().unwrap();
    expect(0, &bench.open("hidden", &["--fuse", dir]));
    file(dir, "hidden").write_all_at(&vec![8; 200 * 4096], 0).unwrap();
    let said = expect(0, &tacita(&["pddm", "close", "--sweep", "--json", dir]));
    let facts: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(facts["dropped"], serde_json::json!([]));
}

/// A process in a mount namespace of its own, which ends with the test.
struct Elsewhere(Child);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another mount namespace that has the folder, too, does not keep the daemon.
#[test]
fn another_namespace_does_not_hold_up_a_close() {
    let test = "another_namespace_does_not_hold_up_a_close";
    if skip_without_fuse(test) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: a mount namespace needs root");
        return;
    }
    worlds(test, |bench, dir, hides| {
        let ready = bench.path("ready");
        let used = if hides { "hidden" } else { "." };
        let script = format!("exec 3< {dir}/{used}; echo > {ready}; exec sleep 1000");
        let mut holder = Command::new("unshare");
        holder.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let _holder = Elsewhere(holder.stdin(Stdio::null()).spawn().unwrap());
        while !fs::exists(&ready).unwrap() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let begun = Instant::now();
        let said = expect(0, &tacita(&["pddm", "close", "--drop", dir]));
        // Without an end of its own it would last as long as the holder.
        assert!(begun.elapsed() < Duration::from_secs(100));
        expect(2, &tacita(&["pddm", "status", dir]));
        said
    });
}

/// A signal is `close --drop`, and the same in both worlds.
#[test]
fn a_signal_cuts_off_hidden_files() {
    let test = "a_signal_cuts_off_hidden_files";
    if skip_without_fuse(test) {
        return;
    }
    for hidden in [&[][..], &["hidden"]] {
        let bench = Bench::new(test);
        bench.init("16M", hidden, &["--heartbeat", "0"]);
        let guard = MountGuard::new().unwrap();
        let dir = guard.path().to_str().unwrap();
        let password = bench.path(hidden.first().unwrap_or(&"public"));
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_tacita"))
            .args(["pddm", "open", &bench.path("device"), "--fuse", dir, "--foreground"])
            .args(["--password-file", &password])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        while tacita(&["pddm", "status", dir]).status.code() != Some(0) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _used = (!hidden.is_empty()).then(|| file(dir, "hidden"));
        let pid = daemon.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        assert!(daemon.wait().unwrap().success());
    }
}
