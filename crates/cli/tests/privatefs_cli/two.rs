//! Two mounts of one store, through an engine, or straight at the server with one anchor.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_oram::agreement::BUILDER;

use crate::bench::{Bench, content};

#[test]
fn two_mounts_see_one_file_system_and_one_goes_on_when_the_other_is_killed() {
    let test = "two_mounts_see_one_file_system_and_one_goes_on_when_the_other_is_killed";
    let Some(mut bench) = Bench::new(test) else { return };
    through_an_engine(&mut bench);
}

#[test]
fn two_mounts_with_one_anchor_need_no_engine() {
    let Some(mut bench) = Bench::new("two_mounts_with_one_anchor_need_no_engine") else { return };
    let address = format!("SERVER --shared-anchor {}", bench.path("together"));
    see_one_file_system(&mut bench, &address);
}

pub(crate) fn through_an_engine(bench: &mut Bench) {
    bench.ends("oram engine SERVER --key KEY --listen AT_ENGINE", 0);
    see_one_file_system(bench, "ENGINE");
}

fn see_one_file_system(bench: &mut Bench, address: &str) {
    let (one, two) = (bench.mount(address, ""), bench.mount(address, ""));
    fs::write(one.join("file"), b"of one").unwrap();
    assert_eq!(fs::read(two.join("file")).unwrap(), b"of one");
    fs::write(two.join("file"), content(50_000, 1)).unwrap();
    assert!(fs::read(one.join("file")).unwrap() == content(50_000, 1));
    fs::rename(two.join("file"), two.join("other")).unwrap();
    assert!(!one.join("file").exists() && one.join("other").exists());

    // Both in one folder at once.
    fs::create_dir(one.join("folder")).unwrap();
    std::thread::scope(|scope| {
        for (which, dir) in [("one", &one), ("two", &two)] {
            scope.spawn(move || {
                for n in 0..40 {
                    let file = dir.join("folder").join(format!("{which}-{n}"));
                    fs::write(&file, which).unwrap();
                    // Whoever is first has it; nobody's is lost.
                    let _ = fs::create_dir(dir.join("folder").join(format!("both-{n}")));
                }
            });
        }
    });
    for dir in [&one, &two] {
        assert_eq!(fs::read_dir(dir.join("folder")).unwrap().count(), 120);
    }
    let info = bench.facts(&format!("privatefs info {address} --key KEY"));
    assert_eq!(info["mounts"], 2, "{info}");

    // What one has synced is there when it is killed with the turn, and the other goes on after a while.
    fs::write(one.join("synced"), content(20_000, 2)).unwrap();
    bench.ends(&format!("sync {}", one.display()), 0);
    fs::write(one.join("not-synced"), content(20_000, 3)).unwrap();
    bench.kill(one.to_str().unwrap());
    assert!(fs::read(two.join("synced")).unwrap() == content(20_000, 2));
    match fs::read(two.join("not-synced")) {
        Ok(found) => assert!(found == content(20_000, 3)),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
    bench.umount(&two);
    bench.check(address);
    let info = bench.facts(&format!("privatefs info {address} --key KEY"));
    assert_eq!((&info["mounts"], &info["commit_to_finish"]), (&0.into(), &false.into()), "{info}");
}

/// How long something is waited for that comes soon, on however slow a machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Others would have to wait until they notice that nobody builds.
#[test]
fn a_mount_that_ends_leaves_the_building_to_others() {
    let test = "a_mount_that_ends_leaves_the_building_to_others";
    let Some(mut bench) = Bench::new(test) else { return };
    let anchor = bench.path("together");
    let has_builder = || {
        let agreement = fs::read(Path::new(&anchor).join("root")).unwrap_or_default();
        agreement.get(BUILDER).is_some_and(|builder| *builder != [0; 16])
    };
    let dir = bench.mount(&format!("SERVER --shared-anchor {anchor}"), "");
    fs::write(dir.join("file"), b"content").unwrap();
    let begun = System.monotonic();
    while !has_builder() {
        assert!(System.elapsed(begun) < PATIENCE, "nobody builds");
        System.wait(Duration::from_millis(20));
    }
    bench.umount(&dir);
    assert!(!has_builder(), "it is gone, and builds still");
}
