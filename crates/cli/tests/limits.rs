//! Mounts of ordinary users under limits of the system. A program by itself, for the mount namespace that it takes
//! holds whatever other tests have mounted.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use tacita_testkit::{copy_program, skip_without, skip_without_fuse};

/// Whoever mounts a file system as an ordinary user takes it away by another program, for which a process and
/// descriptors have to be left.
#[test]
fn a_mount_that_gets_too_little_does_not_stay() {
    let test = "a_mount_that_gets_too_little_does_not_stay";
    let programs = ["prlimit", "setpriv", "unshare", "fusermount3"];
    if skip_without_fuse(test) || skip_without(test, &programs) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can be another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let user = 3_000_000 + std::process::id();
    chown(folder.path(), Some(user), Some(user)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    copy_program(env!("CARGO_BIN_EXE_tacita"), folder.path().join("tacita"));
    // What else is mounted is let go of, for it would not end before this.
    let others = "for dir in $(grep \" fuse.tacita\" /proc/self/mounts | cut -d\" \" -f2); do \
                  umount -l $dir || true; done";
    // fusermount3 serves whoever has an entry, and it is nobody's else: processes are counted by user.
    let script = format!(
        "set -e; {others}; mknod -m 666 node c 10 229; mount --bind node /dev/fuse; cp /etc/passwd users; \
         echo 'tacita-limits:x:{user}:{user}::/:/bin/sh' >> users; mount --bind users /etc/passwd; \
         exec setpriv --reuid {user} --regid {user} --clear-groups sh -c '{LIMITED}'"
    );
    let mut whole = Command::new("unshare");
    // Whoever has ended counts until somebody has asked how, which the script does as the first process.
    let alone = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"];
    whole.args(alone).args(["sh", "-c", &script]).current_dir(folder.path());
    whole.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    let done = whole.output().unwrap();
    let _ = fs::remove_dir(Path::new("/tmp").join(format!("tacita-{user}")));
    assert!(done.status.success(), "{done:?}");
}

/// From a limit under which nothing is begun to one under which a mount is there. Then one that was found a helper for
/// outside of PATH, which takes it away, too.
const LIMITED: &str = "
    set -e
    mkdir dir
    ./tacita dnefs format volume --size 16M
    for kind in nproc nofile; do
        limit=5 code=1
        while test $code != 0; do
            code=0
            prlimit --$kind=$limit ./tacita dnefs mount volume dir 2> told || code=$?
            if test $code != 0 && grep -q \" $PWD/dir \" /proc/self/mounts; then
                echo \"$kind $limit: it stays\"
                cat told
                fusermount3 -u -z dir
                exit 1
            fi
            test $code = 0 || grep -q -e \"ulimit -[un]\" told || { cat told; exit 1; }
            limit=$((limit + 1))
            test $limit -lt 100
        done
        ./tacita umount dir
    done
    env PATH=/nowhere ./tacita dnefs mount volume dir
    env PATH=/nowhere ./tacita umount dir";
