//! Mounts as a line of /etc/fstab, mount(8) and root have them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tacita_testkit::{MountGuard, Watchdog, skip_without, skip_without_fuse};

use super::{TACITA, TIME_MAX, expect, json, tacita, text};

#[test]
fn the_pages_of_mounts_tell_of_fstab() {
    let folder = tempfile::tempdir().unwrap();
    expect(0, &["manual", text(folder.path())]);
    for system in ["hifs", "purge", "dnefs", "privatefs"] {
        let page = folder.path().join(format!("tacita-{system}-mount.1"));
        let page = fs::read_to_string(page).unwrap().replace('\\', "");
        assert!(page.contains("fuse.tacita-hifs noauto,user"), "{page}");
        assert!(page.contains("tacita.NAME=VALUE"), "{page}");
    }
}

/// What mount(8) does with a line of /etc/fstab, its helper being there.
const BY_FSTAB: &str = r#"
    mount --bind "$1" "$(readlink -f /sbin)"
    mount -T "$2" "$3"
    echo kept > "$3/file"
    findmnt -n -o SOURCE,FSTYPE "$3"
    stat -c "%u %g %a" "$3/file"
    mount -a -T "$2"
    sed "s|^[^ ]* [^ ]*|$3.none $3|" "$2" > "$2.absent"
    mount -a -T "$2.absent"
    mount -T "$2.absent" "$3"
    sed s/nofail,// "$2.absent" > "$2.fails"
    if mount -T "$2.fails" "$3"; then echo "absent, and no failure"; fi
    exec 3> "$3/open"
    if mount -T "$2" "$3" -o remount,ro; then echo "read-only, and open for writing"; fi
    exec 3>&-
    mount -T "$2" "$3" -o remount,ro
    if touch "$3/file"; then echo "read-only, and written"; fi
    mount -T "$2" "$3" -o remount,rw
    rm "$3/open"
    umount "$3"
    "$4" hifs check "$5" > /dev/null
    mount -T "$2" "$3" -o ro
    cat "$3/file"
    if touch "$3/file"; then echo "mounted read-only, and written"; fi
    if mount -T "$2" "$3" -o remount,rw; then echo "opened for reading, and made writable"; fi
    if mount -T "$2" "$3" -o remount,ro,nonsense; then echo "nonsense, and taken"; fi
    umount "$3"
    mount -T "$2" "$3" -o nosymfollow,iversion,exec
    ln -s file "$3/link"
    if cat "$3/link"; then echo "no link is followed, and one was"; fi
    rm "$3/link"
    grep " $3 rw,nosuid,nodev,noatime,nosymfollow " /proc/self/mountinfo > /dev/null
    umount "$3"
    mount -T "$2" "$3"
    exec 3< "$3/file"
    umount -l "$3"
    if findmnt "$3"; then echo "taken out of sight, and seen"; fi
    if "$4" hifs check "$5"; then echo "in use, and at its end"; fi
    cat <&3 > /dev/null
    exec 3<&-
    while "$4" status "$5" > /dev/null; do sleep 0.1; done
    "$4" hifs check "$5" > /dev/null
    sed s/user,// "$2" > "$2.of-root"
    mount -T "$2.of-root" "$3"
    for again in ro rw; do mount -T "$2.of-root" "$3" -o remount,$again; done
    grep " $3 rw,nosuid,nodev,noatime " /proc/self/mountinfo > /dev/null
    "$4" remount -o suid,nodev "$3"
    grep " $3 rw,nodev,noatime " /proc/self/mountinfo > /dev/null
    umount "$3"
    for asked in user user,exec user,suid,dev,exec owner user=joe; do
        mount -t fuse.tacita-hifs "$5" "$3" -o "$asked"
        echo "$asked: $(grep " $3 " /proc/self/mountinfo | cut -d " " -f 6)"
        # umount(8) may call no helper that waits: it does where it has kept an option, and keeps no "owner".
        "$4" umount "$3"
    done
    for wrong in umask=77777 uid=4294967295 gid=99999999999 nonsense; do
        if mount -t fuse.tacita-hifs "$5" "$3" -o "$wrong"; then echo "$wrong, and mounted"; fi
    done
"#;

/// What mount(8) makes of these options, for file systems of the kernel, too: `user=NAME` is its own note of
/// who has mounted something, and restricts nothing.
const AS_ASKED: &str = "user: rw,nosuid,nodev,noexec,noatime
user,exec: rw,nosuid,nodev,noatime
user,suid,dev,exec: rw,noatime
owner: rw,nosuid,nodev,noatime
user=joe: rw,noatime
";

#[test]
fn a_line_of_fstab() {
    let test = "a_line_of_fstab";
    if skip_without_fuse(test) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can make a mount namespace");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&folder.path().join(name)).to_owned();
    let (image, dir, table) = (at("my image"), at("mnt"), at("fstab"));
    expect(0, &["hifs", "format", &image, "--size", "4M"]);
    fs::create_dir(&dir).unwrap();
    fs::create_dir(at("sbin")).unwrap();
    for helper in ["mount", "umount"] {
        symlink(TACITA, at(&format!("sbin/{helper}.fuse.tacita-hifs"))).unwrap();
    }
    let options = "nofail,user,x-systemd.automount,_netdev,uid=1234,gid=77,umask=027,\
                   tacita.sync=durable,tacita.commit-every=0";
    let line = format!("{} {dir} fuse.tacita-hifs {options} 0 0\n", image.replace(' ', "\\040"));
    fs::write(&table, line).unwrap();
    let sbin = at("sbin");
    let words = ["-m", "sh", "-ec", BY_FSTAB, "sh", &sbin, &table, &dir, TACITA, &image];
    let output = Command::new("unshare").args(words).stdin(Stdio::null()).output().unwrap();
    let (out, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{said}");
    let wanted = format!("{image} fuse.tacita-hifs\n1234 77 750\nkept\n{AS_ASKED}");
    assert_eq!(out, wanted, "{said}");
    for refused in ["an octal number from 0 to 777", "`id -u NAME`", "`getent group NAME`"] {
        assert!(said.contains(refused), "{refused}: {said}");
    }
}

#[test]
fn who_is_shown_as_the_owner_may_do_what_owners_may() {
    let test = "who_is_shown_as_the_owner_may_do_what_owners_may";
    if skip_without_fuse(test) || skip_without(test, &["setpriv"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: {test}: only root can become somebody else");
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (guard, folder) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
    let (image, dir) = (folder.path().join("image"), guard.path());
    expect(0, &["hifs", "format", text(&image), "--size", "4M"]);
    let options = ["-o", "allow_other,uid=1234"];
    expect(0, &[&["hifs", "mount", text(&image), text(dir)][..], &options].concat());
    let file = dir.join("file");
    fs::write(&file, "content").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
    let user = ["--reuid=1234", "--regid=1234", "--clear-groups"];
    // A chown to nobody.
    let done = Command::new("setpriv").args(user).args(["chown", ":", text(&file)]).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o777);
    expect(0, &["umount", text(dir)]);
}

/// What has been done when its daemon is killed, right behind the last of it.
fn killed_after(mounting: &[&str], dir: &Path) -> Vec<String> {
    expect(0, mounting);
    fs::create_dir(dir.join("folder")).unwrap();
    fs::write(dir.join("removed"), "").unwrap();
    fs::write(dir.join("first"), "").unwrap();
    std::os::unix::fs::symlink("first", dir.join("link")).unwrap();
    fs::rename(dir.join("first"), dir.join("folder/moved")).unwrap();
    fs::remove_file(dir.join("removed")).unwrap();
    fs::hard_link(dir.join("folder/moved"), dir.join("another")).unwrap();
    fs::set_permissions(dir.join("another"), fs::Permissions::from_mode(0o600)).unwrap();
    let pid = json(&expect(0, &["status", text(dir), "--json"]).0)["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    expect(4, &["umount", text(dir)]);
    expect(0, mounting);
    let mut names: Vec<_> = [dir.to_owned(), dir.join("folder")]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mode = fs::metadata(dir.join("another")).map_or(0, |meta| meta.permissions().mode());
    names.push(format!("{:o}", mode & 0o777));
    expect(0, &["umount", text(dir)]);
    names.sort();
    names
}

#[test]
fn what_is_mounted_to_do_so_puts_names_on_the_medium_at_once() {
    let test = "what_is_mounted_to_do_so_puts_names_on_the_medium_at_once";
    if skip_without_fuse(test) {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (guard, folder) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
    let (dir, image) = (guard.path(), folder.path().join("image"));
    let names = ["another", "folder", "link", "moved"];
    for system in ["hifs", "dnefs"] {
        for options in ["dirsync", "sync"] {
            expect(0, &[system, "format", text(&image), "--size", "16M", "--force"]);
            let every = if system == "hifs" { "--commit-every=0" } else { "--purge-every=0" };
            let mounting = [system, "mount", text(&image), text(dir), "-o", options, every];
            let found = killed_after(&mounting, dir);
            assert_eq!(found[1..], names, "{system} {options}");
            assert!(options == "dirsync" || found[0] == "600", "{system}: {found:?}");
        }
    }
}

#[test]
fn what_cannot_be_synced_by_itself_changes_where_all_is_put_on_the_medium() {
    let test = "what_cannot_be_synced_by_itself_changes_where_all_is_put_on_the_medium";
    if skip_without_fuse(test) || !rustix::process::geteuid().is_root() {
        return;
    }
    let _watchdog = Watchdog::start(test, TIME_MAX);
    let (guard, folder) = (MountGuard::new().unwrap(), tempfile::tempdir().unwrap());
    let dir = guard.path();
    let mounting = ["purge", "mount", text(folder.path()), text(dir), "--anyway", "-o", "sync"];
    if tacita(&mounting).status.code() != Some(0) {
        eprintln!("SKIPPED: {test}: nothing is purged in the folder for temporary files");
        return;
    }
    let (pipe, link) = (dir.join("pipe"), dir.join("link"));
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    std::os::unix::fs::symlink("pipe", &link).unwrap();
    fs::set_permissions(&pipe, fs::Permissions::from_mode(0o640)).unwrap();
    for path in [&pipe, &link] {
        std::os::unix::fs::lchown(path, Some(1234), None).unwrap();
    }
    expect(0, &["umount", text(dir)]);
}
