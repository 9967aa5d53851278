//! Folders that ext4 encrypts: whoever has the key reads what is left of names there, so they are
//! cleared as others are, and no verdict says that content was compared.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tacita_purge::{Content, Part, Removal, RemovalOptions, Verdict};
use tacita_testkit::system;

use crate::image::{Fs, Image, turn};

/// Gives the kernel the key, and encrypts the folder with it if it is empty.
const ENCRYPT: &str = r#"
import fcntl, os, struct, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
key = bytearray(struct.pack("<II32sII32s", 2, 0, b"", 64, 0, b"") + bytes(range(64)))
fcntl.ioctl(folder, 0xc0506617, key, True)
if not os.listdir(folder):
    policy = struct.pack("<BBBB4s16s", 2, 1, 4, 3, b"", bytes(key[8:24]))
    fcntl.ioctl(folder, 0x800c6613, bytearray(policy))
"#;

/// Says which names a folder has, as they are stored, of a folder whose key the kernel does not have.
const NAMES: &str = r#"
import base64, os, sys
for name in os.listdir(sys.argv[1]):
    print(base64.urlsafe_b64decode(name + "=" * (-len(name) % 4))[8:].hex())
"#;

fn python(script: &str, folder: &Path) -> Option<String> {
    let run = system("python3", &["-c", script, folder.to_str().unwrap()]);
    run.inspect_err(|e| eprintln!("SKIPPED: a folder that ext4 encrypts: {e}")).ok()
}

fn stored_names(folder: &Path) -> Option<BTreeSet<Vec<u8>>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let name = |line: &str| line.as_bytes().chunks(2).map(byte).collect();
    Some(python(NAMES, folder)?.lines().map(name).collect())
}

fn purge(paths: &[PathBuf], method: &str) -> Vec<Verdict> {
    let method = method.parse().unwrap();
    let mut removal = Removal::new(RemovalOptions { method, ..RemovalOptions::default() });
    for path in paths {
        removal.purge(path);
    }
    removal.finish()
}

#[test]
fn names_are_cleared_as_they_are_stored_and_content_is_not_said_to_be_compared() {
    const TEST: &str = "names_are_cleared_as_they_are_stored";
    let _turn = turn();
    let Some(image) = Image::new(TEST, Fs::Ext4Encrypted) else { return };
    let folder = image.dir().join("sealed");
    fs::create_dir(&folder).unwrap();
    if python(ENCRYPT, &folder).is_none() {
        return;
    }
    let paths: Vec<PathBuf> =
        (0..600).map(|number| folder.join(format!("patient-{number:04}-of-ward-9"))).collect();
    for path in &paths {
        fs::write(path, "x").unwrap();
    }
    // Both are shorter than what an inode holds; the longer one is not, as it is stored.
    let links = [folder.join("short"), folder.join("long")];
    std::os::unix::fs::symlink("t".repeat(20), &links[0]).unwrap();
    std::os::unix::fs::symlink("t".repeat(50), &links[1]).unwrap();
    image.remount();
    let before = stored_names(&folder).unwrap();
    assert_eq!(before.len(), 602);
    python(ENCRYPT, &folder).unwrap();
    let lost: Vec<PathBuf> = paths.iter().step_by(3).cloned().collect();
    let verdicts = purge(&lost, "clear");
    for verdict in &verdicts {
        let Content::Unproven(why) = &verdict.content else { panic!("{verdict:?}") };
        assert!(why.contains("encrypts it") && !verdict.holds(), "{verdict:?}");
    }
    let verdicts_of_links = purge(&links, "clear");
    assert_eq!(verdicts_of_links[0].content, Content::NothingStored);
    assert!(matches!(verdicts_of_links[1].content, Content::NotInPlace(_)));
    assert_eq!(purge(&paths[1..2], "zero")[0].content, Content::InPlace);

    image.remount();
    let after = stored_names(&folder).unwrap();
    assert_eq!(after.len(), 399);
    image.unmount();
    let bytes = fs::read(image.path()).unwrap();
    let is_left = |name: &&Vec<u8>| memchr::memmem::find(&bytes, name).is_some();
    let left = before.difference(&after).filter(is_left).count();
    let said = verdicts.iter().filter(|verdict| matches!(verdict.name, Part::Left(_))).count();
    assert!(left == 0 || said == verdicts.len(), "{left} names are left, {said} verdicts say so");
}
