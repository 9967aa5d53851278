//! The commands as scripts use them.

use std::fs;
use std::path::Path;

use rustix::fs::XattrFlags;
use serde_json::Value;
use tacita_testkit::{kill_daemon, search};

use crate::image::{Image, assert_refused, code, json, said, tacita};

#[test]
fn a_mount_purges_and_tells_its_status() {
    let Some(image) = Image::new("a_mount_purges_and_tells_its_status") else { return };
    let secret = "a secret of the command line; ";
    fs::write(image.lower().join("secret-file"), secret.repeat(500)).unwrap();
    assert!(image.count(secret) > 0);
    let report = image.folder.path().join("report");
    let mounted = image.purge_mount(&["--async", "--report", report.to_str().unwrap()]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    let upper = image.upper();
    let dir = upper.to_str().unwrap();
    let again = image.purge_mount(&[]);
    assert_eq!(code(&again), 5, "{}", said(&again));
    fs::remove_file(upper.join("secret-file")).unwrap();
    let status = tacita(&["purge", "status", dir, "--finish", "--json"]);
    assert_eq!(code(&status), 0, "{}", said(&status));
    let facts = json(&status);
    assert_eq!((&facts["files"], &facts["verified"]), (&1.into(), &1.into()), "{facts:#}");
    assert_eq!(facts["idle"], true);
    let text = tacita(&["purge", "status", dir]);
    assert!(said(&text).contains("1 verified in place"), "{}", said(&text));
    assert_eq!(code(&image.umount()), 0);
    assert_eq!(image.count(secret) + image.count("secret-file"), 0);
    let line: Value = serde_json::from_str(fs::read_to_string(&report).unwrap().trim()).unwrap();
    assert_eq!(line["content"], "verified in place");
    assert_eq!(code(&tacita(&["purge", "status", dir])), 2, "nothing is mounted");
}

/// Else a loss of power right after takes it.
#[test]
fn what_was_written_is_on_the_medium_after_a_sync_and_an_unmount() {
    let test = "what_was_written_is_on_the_medium_after_a_sync_and_an_unmount";
    let Some(image) = Image::new(test) else { return };
    let upper = image.upper();
    // As it would be found then: the lower file system stays mounted.
    let holds = |text: &str| search::holds(&fs::read(image.path()).unwrap(), text.as_bytes());
    for options in [&[][..], &["--no-passthrough"], &["--async"]] {
        let mounted = image.purge_mount(options);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        let written = |way: &str| {
            let content = format!("kept by {way} {}; ", options.concat());
            fs::write(upper.join("file"), content.repeat(5000)).unwrap();
            content
        };
        let synced = written("a sync");
        let done = tacita(&["sync", upper.to_str().unwrap()]);
        assert_eq!(code(&done), 0, "{}", said(&done));
        assert!(holds(&synced), "{synced}");
        let unmounted = written("an unmount");
        assert_eq!(code(&image.umount()), 0);
        assert!(holds(&unmounted), "{unmounted}");
    }
}

#[test]
fn a_mount_on_its_own_folder_hides_the_way_around_it() {
    let Some(image) = Image::new("a_mount_on_its_own_folder_hides_the_way_around_it") else {
        return;
    };
    let lower = image.lower();
    let dir = lower.to_str().unwrap();
    let secret = "nobody gets around this; ";
    fs::write(lower.join("secret-file"), secret.repeat(500)).unwrap();
    let mounted = tacita(&["purge", "mount", dir, dir]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    fs::remove_file(lower.join("secret-file")).unwrap();
    assert_eq!(code(&tacita(&["umount", dir])), 0);
    assert_eq!(image.count(secret), 0);
}

#[test]
fn a_file_is_purged_with_a_verdict() {
    let Some(image) = Image::new("a_file_is_purged_with_a_verdict") else { return };
    let path = image.lower().join("secret-file");
    let write = || {
        fs::write(&path, "purged by name; ".repeat(1000)).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
    };
    write();
    let done = tacita(&["purge", "file", "--json", "--method", "d", path.to_str().unwrap()]);
    assert_eq!(code(&done), 0, "{}", said(&done));
    let verdict = json(&done);
    assert_eq!(verdict["content"], "verified in place");
    assert_eq!(verdict["journal"], "done");
    assert_eq!(verdict["holds"], true);
    assert_eq!(image.count("purged by name") + image.count("secret-file"), 0);
    write();
    let held = fs::File::open(&path).unwrap();
    assert_eq!(code(&tacita(&["purge", "file", path.to_str().unwrap()])), 5);
    drop(held);
    fs::hard_link(&path, image.lower().join("second")).unwrap();
    assert_eq!(code(&tacita(&["purge", "file", path.to_str().unwrap()])), 1);
    assert!(path.exists());
    let missing = image.lower().join("missing");
    assert_eq!(code(&tacita(&["purge", "file", missing.to_str().unwrap()])), 2);
    assert_eq!(code(&tacita(&["purge", "file", "--method", "x", missing.to_str().unwrap()])), 2);
}

#[test]
fn probe_answers_by_its_exit_code() {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        let told = tacita(&["purge", "probe", "/dev/shm"]);
        assert_eq!(code(&told), 7, "{}", said(&told));
        assert!(said(&told).contains("destroy"), "it says what to do instead: {}", said(&told));
    }
    assert_eq!(code(&tacita(&["purge", "probe", "/no/such/folder"])), 2);
    assert_eq!(code(&tacita(&["purge", "probe", "/proc"])), 7);
    let old = tacita(&["purge", "suits", "/no/such/folder"]);
    assert_eq!(code(&old), 2, "its old name");
    assert!(said(&old).contains("called `tacita purge probe` now"), "{}", said(&old));
    let old = tacita(&["purge", "suits", "/no/such/folder", "--json"]);
    assert!(!said(&old).contains("called"), "what is read by programs is JSON alone");
    let new = tacita(&["purge", "probe", "/no/such/folder"]);
    assert!(!said(&new).contains("called"), "{}", said(&new));
    let Some(image) = Image::new("probe_answers_by_its_exit_code") else { return };
    let told = tacita(&["purge", "probe", "--json", image.lower().to_str().unwrap()]);
    let facts = json(&told);
    assert_eq!(facts["probe"], "verified in place");
    assert_eq!(code(&told), if facts["flash"] == true { 7 } else { 0 }, "{}", said(&told));
}

#[test]
fn places_that_cannot_be_mounted_are_refused() {
    let Some(image) = Image::new("places_that_cannot_be_mounted_are_refused") else { return };
    let lower = image.lower();
    fs::create_dir(lower.join("inner")).unwrap();
    let (outer, inner) = (lower.to_str().unwrap(), lower.join("inner"));
    let inner = inner.to_str().unwrap();
    for places in [[outer, inner], [inner, outer], ["/no/such", outer], [outer, "/no/such"]] {
        let refused = tacita(&[&["purge", "mount"], &places[..]].concat());
        assert_eq!(code(&refused), 2, "{places:?}: {}", said(&refused));
    }
    let rules = image.folder.path().join("rules");
    fs::write(&rules, "*.x nonsense\n").unwrap();
    let refused = image.purge_mount(&["--rules", rules.to_str().unwrap()]);
    assert_eq!(code(&refused), 2, "{}", said(&refused));
    assert!(said(&refused).contains("line 1"), "{}", said(&refused));
    if Path::new("/dev/shm").is_dir() {
        let upper = image.upper();
        let refused = tacita(&["purge", "mount", "/dev/shm", upper.to_str().unwrap()]);
        assert_eq!(code(&refused), 7, "{}", said(&refused));
    }
}

/// What waits to be purged is something that Tacita made: by its own folder, and by the one it lies in.
#[test]
fn what_a_mount_has_left_is_recognised() {
    let Some(image) = Image::new("what_a_mount_has_left_is_recognised") else { return };
    let (lower, upper) = (image.lower(), image.upper());
    let spool = lower.join(".tacita-purge");
    let [lower, spool] = [lower, spool].map(|path| path.to_str().unwrap().to_owned());
    assert_eq!(code(&tacita(&["info", &lower])), 4, "there is none yet");
    fs::write(image.lower().join("file"), "x".repeat(5000)).unwrap();
    let mounted = image.purge_mount(&[]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    let held = fs::File::open(upper.join("file")).unwrap();
    fs::remove_file(upper.join("file")).unwrap();
    kill_daemon(&tacita(&["status", upper.to_str().unwrap(), "--json"]).stdout);
    drop(held);
    assert_eq!(code(&image.umount()), 4);
    for left in [&lower, &spool] {
        let info = tacita(&["info", left, "--json"]);
        assert_eq!(code(&info), 0, "{}", said(&info));
        assert_eq!(json(&info)["read_by"], "tacita purge mount LOWER DIR", "{}", said(&info));
        assert_refused(&tacita(&["check", left]), 2, "spool of purge", "tacita purge mount");
    }
    let mounted = image.purge_mount(&[]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    assert_eq!(code(&image.umount()), 0);
    assert_eq!(code(&tacita(&["info", &lower])), 4, "nothing waits any more");
}

/// Whoever goes by what an unmount says would take it for gone.
#[test]
fn an_unmount_tells_of_deleted_files_that_are_in_use_below() {
    let test = "an_unmount_tells_of_deleted_files_that_are_in_use_below";
    let Some(image) = Image::new(test) else { return };
    let secret = "somebody reads this below; ";
    fs::write(image.lower().join("file"), secret.repeat(500)).unwrap();
    assert!(image.count(secret) > 0);
    let mounted = image.purge_mount(&[]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    let used = fs::File::open(image.lower().join("file")).unwrap();
    fs::remove_file(image.upper().join("file")).unwrap();
    assert_refused(&image.umount(), 5, "1 deleted files are not purged", "the next mount");
    drop(used);
    assert!(image.count(secret) > 0, "it was in use");
    let mounted = image.purge_mount(&[]);
    assert_eq!(code(&mounted), 0, "{}", said(&mounted));
    let unmounted = image.umount();
    assert_eq!(code(&unmounted), 0, "{}", said(&unmounted));
    assert_eq!(image.count(secret), 0);
    assert!(!image.lower().join(".tacita-purge").exists());
}

/// ext4 has one block for files with the same attributes, and frees the one that a file has had before.
#[test]
fn blocks_of_attributes_that_files_share_are_told_of() {
    let test = "blocks_of_attributes_that_files_share_are_told_of";
    let Some(image) = Image::new(test) else { return };
    let (lower, upper) = (image.lower(), image.upper());
    let dir = lower.to_str().unwrap();
    let tells = |text: &Value| text.as_str().is_some_and(|text| text.contains("nombcache"));
    for (options, is_shared) in [("rw", true), ("nombcache", false)] {
        assert!(image.mount_with(options), "{options}");
        let probed = tacita(&["purge", "probe", "--json", dir]);
        assert_eq!(json(&probed)["shares_attributes"], is_shared, "{}", said(&probed));
        let answer = said(&tacita(&["purge", "probe", dir]));
        assert_eq!(answer.contains("nombcache"), is_shared, "{answer}");
        let looked = json(&tacita(&["doctor", "--json", dir]));
        let findings = looked["findings"].as_array().unwrap();
        let found = findings.iter().find(|found| found["what"] == "attributes").unwrap();
        assert_eq!(found["leaks"], is_shared, "{found:#}");
        let paths = ["by-path", "plain", "in-mount"].map(|name| lower.join(name));
        for path in &paths {
            fs::write(path, "x").unwrap();
            if !path.ends_with("plain") {
                rustix::fs::setxattr(path, "user.note", b"secret", XattrFlags::empty()).unwrap();
            }
        }
        let mut verdicts = Vec::new();
        for path in &paths[..2] {
            verdicts.push(json(&tacita(&["purge", "file", "--json", path.to_str().unwrap()])));
        }
        let mounted = image.purge_mount(&[]);
        assert_eq!(code(&mounted), 0, "{}", said(&mounted));
        fs::remove_file(upper.join("in-mount")).unwrap();
        let status = tacita(&["purge", "status", "--finish", "--json", upper.to_str().unwrap()]);
        assert_eq!(json(&status)["shares_attributes"], is_shared);
        verdicts.push(json(&status)["last"][0].clone());
        assert_eq!(code(&image.umount()), 0);
        let told =
            verdicts.iter().map(|verdict| verdict["risks"].as_array().unwrap().iter().any(tells));
        assert_eq!(told.collect::<Vec<_>>(), [is_shared, false, is_shared], "{verdicts:#?}");
    }
}
