//! Runs by path over several files and folders.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tacita_testkit::strace::cannot_trace;

use crate::image::{Image, code, said};

/// Folders in each other.
const DEEP: usize = 100;

/// Runs the program under strace.
fn under_strace(strace: &[&str], arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_tacita");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq"]).args(strace).arg(program).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

fn verdicts(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_folder_is_written_back_as_often_however_deep_it_lies() {
    let test = "a_folder_is_written_back_as_often_however_deep_it_lies";
    let Some(image) = Image::new(test).filter(|_| !cannot_trace(test)) else { return };
    let tree = image.lower().join("tree");
    let deep: PathBuf = std::iter::repeat_n("folder", DEEP).collect();
    fs::create_dir_all(tree.join(deep)).unwrap();
    let trace = image.folder.path().join("trace");
    let strace = ["-o", trace.to_str().unwrap(), "-e", "trace=fsync"];
    let purged =
        under_strace(&strace, &["purge", "file", "--recursive", "--json", tree.to_str().unwrap()]);
    assert_eq!(code(&purged), 0, "{}", said(&purged));
    let verdicts = verdicts(&purged);
    assert_eq!(verdicts.len(), DEEP + 1);
    assert!(verdicts.iter().all(|verdict| verdict["holds"] == true), "{verdicts:#?}");
    let count = fs::read_to_string(&trace).unwrap().matches("fsync(").count();
    assert!((DEEP..5 * DEEP).contains(&count), "{count} for {DEEP} folders");
}

#[test]
fn a_flush_that_fails_takes_no_verdict_away() {
    let test = "a_flush_that_fails_takes_no_verdict_away";
    let Some(image) = Image::new(test).filter(|_| !cannot_trace(test)) else { return };
    let tree = image.lower().join("tree");
    fs::create_dir(&tree).unwrap();
    let paths = ["one", "two"].map(|name| tree.join(name));
    for path in &paths {
        fs::write(path, "a secret of a disk that fails; ".repeat(500)).unwrap();
    }
    assert!(image.count("a secret of a disk") > 0);
    let strace = ["-o", "/dev/null", "-e", "inject=fsync:error=EIO"];
    let purged =
        under_strace(&strace, &["purge", "file", "--recursive", "--json", tree.to_str().unwrap()]);
    assert_eq!(code(&purged), 4, "{}", said(&purged));
    let [one, two, folder] = &verdicts(&purged)[..] else { panic!("{}", said(&purged)) };
    for verdict in [one, two] {
        assert_eq!(verdict["content"], "verified in place", "{verdict:#}");
        let told = (&verdict["removed"], &verdict["holds"]);
        assert_eq!(told, (&true.into(), &false.into()), "{verdict:#}");
        let why = verdict["name"]["left"].as_str().unwrap();
        assert!(why.contains("writing a folder back"), "{verdict:#}");
    }
    assert_eq!((&folder["content"], &folder["removed"]), (&"kept".into(), &false.into()));
    assert!(tree.exists() && paths.iter().all(|path| !path.exists()));
}
