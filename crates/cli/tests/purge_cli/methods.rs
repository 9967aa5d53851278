//! What single methods, marks and kinds of nodes promise.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::image::{Image, code, json, said, system, tacita};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Method f: the overwritten file is held for as long again as it had lived, over unmounting too.
/// Until when is looked at on a simulated clock, in the tests of the engine.
#[test]
fn method_f_holds_files_over_unmounting() {
    let test = "method_f_holds_files_over_unmounting";
    // Births are not kept there, and the time of the last access stands for them.
    let made = Image::of(test, "mkfs.ext4", &["-q", "-F", "-I", "128"], 32);
    let Some(image) = made else { return };
    let secret = "overwritten at once, and held; ";
    let path = image.upper().join("secret-file");
    assert_eq!(code(&image.purge_mount(&["--method", "f"])), 0);
    fs::write(&path, secret.repeat(500)).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_times(fs::FileTimes::new().set_accessed(UNIX_EPOCH)).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::remove_file(&path).unwrap();
    let held = || {
        let dir = image.upper();
        let words = ["purge", "status", "--json", text(&dir), "--finish"];
        json(&tacita(&words))["in_use_or_held"].as_u64().unwrap()
    };
    assert_eq!(held(), 1, "for decades");
    assert_eq!(code(&image.umount()), 0);
    assert!(image.lower().join(".tacita-purge").exists(), "it is still held");
    assert_eq!(image.count(secret), 0, "it is overwritten already");
    assert_eq!(code(&image.purge_mount(&["--method", "f"])), 0);
    assert_eq!(held(), 1);
    assert_eq!(code(&image.umount()), 0);
}

/// Targets of links up to 59 bytes go with their inode; longer ones have a block of their own, which
/// no call reaches: that is told.
#[test]
fn targets_of_links_are_gone_or_told_of() {
    let test = "targets_of_links_are_gone_or_told_of";
    let Some(image) = Image::new(test) else { return };
    let short = "short-secret-target";
    let long = format!("/{}", "long-secret-target/".repeat(20));
    let make = |dir: &Path| {
        for (name, target) in [("short", short), ("long", &long)] {
            symlink(target, dir.join(name)).unwrap();
        }
    };
    make(&image.lower());
    assert!(image.count(short) > 0 && image.count("long-secret-target") > 0);
    let dir = image.lower();
    let done = tacita(&["purge", "file", "--json", text(&dir.join("short"))]);
    assert_eq!((code(&done), json(&done)["holds"].as_bool()), (0, Some(true)), "{}", said(&done));
    let done = tacita(&["purge", "file", "--json", text(&dir.join("long"))]);
    assert_eq!(code(&done), 1, "{}", said(&done));
    assert_eq!(json(&done)["content"], "not in place", "{}", said(&done));
    assert_eq!(image.count(short), 0);
    assert!(image.count("long-secret-target") > 0, "if it were gone, the verdict would be wrong");
    assert_eq!(code(&image.purge_mount(&[])), 0);
    make(&image.upper());
    fs::remove_file(image.upper().join("short")).unwrap();
    fs::remove_file(image.upper().join("long")).unwrap();
    let status = tacita(&["purge", "status", "--json", text(&image.upper())]);
    assert_eq!(json(&status)["long_links"], 1, "{}", said(&status));
    assert_eq!(code(&image.umount()), 0);
    assert_eq!(image.count(short), 0);
}

/// Opaque links: the same long target, kept where it can be overwritten. What programs see is a link.
#[test]
fn opaque_links_are_links_whose_targets_are_purged() {
    let test = "opaque_links_are_links_whose_targets_are_purged";
    let Some(image) = Image::new(test) else { return };
    let (lower, upper) = (image.lower(), image.upper());
    let long = |name: &str| format!("/{}", format!("opaque-target-of-{name}/").repeat(20));
    let mount = || {
        let mounted = image.purge_mount(&["--opaque-links"]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    };
    mount();
    for name in ["gone", "replaced", "kept", "moved"] {
        symlink(long(name), upper.join(name)).unwrap();
    }
    symlink("short", upper.join("short")).unwrap();
    // An ordinary file with the same permissions is no link.
    fs::write(upper.join("file"), "a file").unwrap();
    let odd: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o1600);
    fs::set_permissions(upper.join("file"), odd).unwrap();
    let attribute = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(upper.join("file"), "user.tacita.link", b"", attribute).unwrap_err();
    let examine = |names: &[&str]| {
        for name in names {
            let seen = fs::symlink_metadata(upper.join(name)).unwrap();
            assert!(seen.is_symlink() && seen.len() == long(name).len() as u64, "{name}");
            assert_eq!(fs::read_link(upper.join(name)).unwrap(), Path::new(&long(name)));
        }
        let listed = fs::read_dir(&upper).unwrap().map(Result::unwrap);
        let links = listed.filter(|entry| entry.file_type().unwrap().is_symlink());
        assert_eq!(links.count(), names.len() + 1, "the short one, too");
        assert_eq!(fs::read_to_string(upper.join("file")).unwrap(), "a file");
    };
    examine(&["gone", "replaced", "kept", "moved"]);
    assert_eq!(code(&image.umount()), 0);
    assert!(image.count("opaque-target-of-gone") > 0);
    let below = |name: &str| fs::symlink_metadata(lower.join(name)).unwrap();
    assert!(below("kept").is_file() && below("short").is_symlink());
    mount();
    fs::rename(upper.join("moved"), upper.join("moved2")).unwrap();
    fs::rename(upper.join("moved2"), upper.join("moved")).unwrap();
    examine(&["gone", "replaced", "kept", "moved"]);
    fs::remove_file(upper.join("gone")).unwrap();
    fs::rename(upper.join("file"), upper.join("replaced")).unwrap();
    fs::rename(upper.join("replaced"), upper.join("file")).unwrap();
    examine(&["kept", "moved"]);
    let status = json(&tacita(&["purge", "status", "--json", text(&upper)]));
    assert_eq!((&status["long_links"], &status["files"]), (&0.into(), &2.into()), "{status:#}");
    assert_eq!(code(&image.umount()), 0);
    for name in ["gone", "replaced"] {
        assert_eq!(image.count(&format!("opaque-target-of-{name}")), 0, "{name}");
    }
    assert!(image.count("opaque-target-of-kept") > 0, "it is kept");
    // Without a mount, and without the option, it is a file like any other.
    let done = tacita(&["purge", "file", "--json", text(&lower.join("kept"))]);
    assert_eq!((code(&done), json(&done)["holds"].as_bool()), (0, Some(true)), "{}", said(&done));
    assert_eq!(image.count("opaque-target-of-kept"), 0);
}

/// `chattr` through the mount: a user's mark decides; what is root's stays root's.
#[test]
fn marks_are_set_through_the_mount_and_honoured() {
    let test = "marks_are_set_through_the_mount_and_honoured";
    let Some(image) = Image::new(test) else { return };
    let mounted = image.purge_mount(&["--marked-only", "-o", "allow_other"]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    let upper = image.upper();
    if !system("chattr", &["+s", text(&upper.join("."))]) {
        // Where it is not installed; where it is, it has to work.
        assert!(!system("sh", &["-c", "command -v chattr"]), "chattr fails through the mount");
        eprintln!("SKIPPED: {test}: no chattr");
        return;
    }
    assert!(system("chattr", &["-s", text(&upper)]));
    fs::create_dir(upper.join("marked-folder")).unwrap();
    assert!(system("chattr", &["+s", text(&upper.join("marked-folder"))]));
    for name in ["marked", "plain", "unmarked", "marked-folder/in-it"] {
        let path = upper.join(name);
        let name = name.replace('/', "-");
        fs::write(&path, format!("LOST-{name}-content; ").repeat(500)).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
    }
    for name in ["marked", "unmarked"] {
        assert!(system("chattr", &["+s", text(&upper.join(name))]));
    }
    assert!(system("chattr", &["-s", text(&upper.join("unmarked"))]));
    let lower = text(&image.lower()).to_owned();
    let marks = format!("lsattr {lower}/marked {lower}/unmarked | cut -c-3 | tr '\\n' ' '");
    assert!(system("sh", &["-c", &format!("test \"$({marks})\" = 's-- --- '")]), "as seen below");
    let marks = marks.replace(&lower, text(&upper));
    assert!(system("sh", &["-c", &format!("test \"$({marks})\" = 's-- --- '")]), "as seen above");
    // With the daemon's privilege it would be possible.
    assert!(!system("chattr", &["+j", text(&upper.join("plain"))]), "the journal's mark");
    if system("setpriv", &["--version"]) {
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "chattr"];
        let open: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(image.folder.path(), open).unwrap();
        let own = upper.join("own");
        fs::write(&own, "LOST-own-content; ".repeat(500)).unwrap();
        assert!(system("chown", &["65534", text(&own)]));
        let by_user = |mark: &str, name: &str| {
            system("setpriv", &[&nobody[..], &[mark, text(&upper.join(name))]].concat())
        };
        assert!(!by_user("+s", "plain"), "it is not theirs");
        assert!(!by_user("+i", "own"), "that takes a capability");
        assert!(by_user("+s", "own"), "their own file");
        fs::File::open(&own).unwrap().sync_all().unwrap();
        fs::remove_file(&own).unwrap();
    }
    for name in ["marked", "plain", "unmarked", "marked-folder/in-it"] {
        fs::remove_file(upper.join(name)).unwrap();
    }
    assert_eq!(code(&image.umount()), 0);
    for (name, purged) in [("marked", true), ("plain", false), ("unmarked", false), ("own", true)] {
        assert_eq!(image.count(&format!("LOST-{name}-content")) == 0, purged, "{name}");
    }
    assert_eq!(image.count("LOST-marked-folder-in-it-content"), 0, "inherited");
}
