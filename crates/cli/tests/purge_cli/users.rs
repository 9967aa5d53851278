//! Users other than root, who can do less, and are told what of it may be left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tacita_testkit::copy_program;

use crate::image::{Image, said, system};

/// `nobody`, everywhere.
const USER: &str = "65534";

/// One at a time: who is done removes the folder of that user's serving locks, if there is nothing in it.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a script as that user in a mount namespace of its own, where /dev/fuse is open to all if
/// `fuse` says so, as it is on machines with udev. `$T` is the program.
fn as_user(image: &Image, fuse: bool, script: &str) -> Output {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = image.folder.path();
    // Both have to be reached by that user.
    let program = folder.join("tacita");
    if !program.exists() {
        copy_program(env!("CARGO_BIN_EXE_tacita"), &program);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mode = if fuse { "666" } else { "600" };
    let whole = format!(
        "set -e; rm -f node; mknod -m {mode} node c 10 229; mount --bind node /dev/fuse; \
         exec setpriv --reuid {USER} --regid {USER} --clear-groups \
         sh -c 'set -e; T=$PWD/tacita; {script}'"
    );
    let done = Command::new("unshare")
        .args(["--mount", "sh", "-c", &whole])
        .current_dir(folder)
        .env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin")
        .output()
        .unwrap();
    let _ = fs::remove_dir(Path::new("/tmp").join(format!("tacita-{USER}")));
    done
}

fn image(test: &str) -> Option<Image> {
    let owner = format!("root_owner={USER}:{USER}");
    let image = Image::of(test, "mkfs.ext4", &["-q", "-F", "-E", &owner], 32)?;
    if !system("setpriv", &["--version"]) || !system("unshare", &["--mount", "true"]) {
        eprintln!("SKIPPED: {test}: no setpriv, or no mount namespaces");
        return None;
    }
    system("chown", &[USER, image.upper().to_str().unwrap()]).then_some(image)
}

#[test]
fn a_user_purges_a_folder_of_ones_own() {
    let test = "a_user_purges_a_folder_of_ones_own";
    let Some(image) = image(test) else { return };
    let secret = "a secret of an ordinary user; ";
    let done = as_user(
        &image,
        true,
        "for n in 1 2 3; do yes \"a secret of an ordinary user; \" | head -500 > lower/secret-$n; \
         done; sync lower/secret-*; \
         $T purge mount lower upper; \
         exec 3< upper/secret-1; rm upper/secret-1; test \"$(head -c 8 <&3)\" = \"a secret\"; \
         exec 3<&-; : > upper/secret-2; mkdir upper/dir; mv upper/secret-3 upper/dir/x; \
         rm -r upper/dir; chattr +s upper/secret-2 || echo no mark; \
         $T purge status --finish --json upper; $T umount upper",
    );
    assert!(done.status.success(), "{}", said(&done));
    let printed = String::from_utf8_lossy(&done.stdout);
    let status: Value = serde_json::from_str(&printed[printed.find('{').unwrap()..]).unwrap();
    assert_eq!((&status["verified"], &status["files"]), (&3.into(), &2.into()), "{status:#}");
    for verdict in status["last"].as_array().unwrap() {
        // The device is not open to them, so it was read past the cache; the journal is root's.
        assert_eq!(verdict["proof"], "direct read", "{verdict}");
    }
    let mut verdicts = status["last"].as_array().unwrap().iter();
    let file = verdicts.find(|verdict| verdict["journal"].is_object()).unwrap();
    let left = file["journal"]["left"].as_str().unwrap();
    assert!(left.contains("root"), "{file}");
    assert_eq!(file["holds"], false, "names may be left in the journal: {file}");
    assert_eq!(image.count(secret), 0);
}

/// Without a mount, too: what was seen is told, and what only root could do.
#[test]
fn a_user_purges_a_file_of_ones_own() {
    let test = "a_user_purges_a_file_of_ones_own";
    let Some(image) = image(test) else { return };
    let done = as_user(
        &image,
        true,
        "yes \"of a user, without a mount; \" | head -500 > lower/secret; sync lower/secret; \
         $T purge file --json lower/secret || echo \"code $?\" >&2",
    );
    assert!(done.status.success(), "{}", said(&done));
    let verdict: Value = serde_json::from_slice(&done.stdout).unwrap();
    let seen = (&verdict["content"], &verdict["proof"], &verdict["removed"], &verdict["holds"]);
    let expected = ("verified in place".into(), "direct read".into(), true.into(), false.into());
    assert_eq!(seen, (&expected.0, &expected.1, &expected.2, &expected.3), "{verdict:#}");
    assert!(verdict["journal"]["left"].as_str().unwrap().contains("root"), "{verdict:#}");
    assert!(said(&done).contains("code 1"), "it does not hold: {}", said(&done));
    assert_eq!(image.count("of a user, without a mount"), 0);
}

#[test]
fn a_user_without_fuse_or_folder_is_told_what_is_missing() {
    let test = "a_user_without_fuse_or_folder_is_told_what_is_missing";
    let Some(image) = image(test) else { return };
    let refusals = [
        (false, "$T purge mount lower upper", "/dev/fuse", "mode 0666"),
        (true, "$T purge mount lower/private upper", "Permission denied", "as root"),
        (true, "$T purge mount lower/closed upper", "Permission denied", "as root"),
        (true, "$T purge mount lower foreign", "foreign", "a folder of their own"),
        (true, "$T purge mount lower upper -o allow_other", "allow_other", "user_allow_other"),
    ];
    for (name, mode) in [("private", 0o700), ("closed", 0o755)] {
        let dir = image.lower().join(name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(image.folder.path().join("foreign")).unwrap();
    let closed = image.lower().join("closed/file");
    fs::write(&closed, "of somebody else").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o666)).unwrap();
    for (fuse, script, cause, remedy) in refusals {
        if script.contains("allow_other") && allows_others() {
            continue;
        }
        let refused = as_user(&image, fuse, script);
        crate::image::assert_refused(&refused, 7, cause, remedy);
    }
    // It could be overwritten, but not removed: so nothing of it is touched.
    let refused = as_user(&image, true, "$T purge file lower/closed/file");
    crate::image::assert_refused(&refused, 7, "1 of 1", "as root");
    assert_eq!(fs::read_to_string(&closed).unwrap(), "of somebody else");
}

fn allows_others() -> bool {
    let settings = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    settings.lines().any(|line| line.trim() == "user_allow_other")
}
