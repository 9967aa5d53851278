//! The small sources compiled and run, as they were and instrumented: they do the same, and the code of
//! the extension runs once for each call, whichever return is taken.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tacita_fist::{Extension, Folder, Kernel, instrument};

/// Counts calls before and after, and what the last result was.
const COUNTING: &str = "%{\nextern int before, after, last;\n%}\n%%\n\
    %op:all:precall { before++; }\n%op:all:postcall { after++; last = fistLastErr(); }\n";

/// Calls of handlers through their vectors; each prints what comes of it.
const CALLS: [(&str, &str); 3] = [
    (
        "returns",
        "for (int ino = 0; ino < 3; ino++) for (unsigned f = 0; f < 12; f++) {\n\
         struct inode inode = { .i_ino = ino, .i_flags = f };\n\
         SHOW(sample_file_operations.open(&inode, NULL), r);\n\
         SHOW(sample_file_operations.llseek(NULL, f, ino), r > INT_MAX ? INT_MAX : (int)r);\n}\n\
         SHOW(sample_file_operations.open(NULL, NULL), r);\n",
    ),
    (
        "types",
        "struct inode gone = { 0 }, there = { .i_nlink = 1, .i_size = 5 };\n\
         struct address_space space = { &there };\nstruct readahead_control control = { &space };\n\
         SHOW(sample_inode_operations.lookup(NULL, NULL, 1), -36);\n\
         SHOW(sample_inode_operations.lookup(NULL, NULL, 0), 0);\n\
         SHOW(*sample_inode_operations.get_link(NULL, NULL, NULL), 0);\n\
         SHOW(sample_aops.dirty_folio(&space, NULL), 0);\n\
         SHOW(sample_file_operations.read(NULL, NULL, 1ul << 40, NULL), INT_MAX);\n\
         SHOW((sample_sops.evict_inode(&gone), 1), 0);\n\
         SHOW((sample_sops.evict_inode(&there), there.i_size), 0);\n\
         SHOW((sample_aops.readahead(&control), control.mapping != NULL), 0);\n\
         SHOW((sample_aops.readahead(NULL), 2), 0);\n",
    ),
    (
        "macros",
        "struct holder holder = { .inode = { .i_nlink = 2 } }, none = { 0 };\n\
         struct dentry dentry = { 0 };\n\
         SHOW(sample_inode_operations.unlink(&holder.inode, &dentry), r);\n\
         SHOW(sample_inode_operations.unlink(&none.inode, NULL), r);\n",
    ),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Compiles a program of a source and its calls, runs it and gives what it printed.
fn run(work: &Path, source: &Path, calls: &str, counted: bool) -> String {
    let counted = i32::from(counted);
    let mut main = String::from("#include <stdio.h>\nint before, after, last;\n");
    let _ = writeln!(main, "#include \"{}\"", source.display());
    let _ = writeln!(
        main,
        "#define SHOW(call, wanted) do {{ int b = before, a = after; long long r = (long long)(call); \
         printf(\"%lld\\n\", r); if ({counted} && (before != b + 1 || after != a + 1 || last != (wanted))) \
         printf(\"line %d: %d before, %d after, last %d\\n\", __LINE__, before - b, after - a, last); }} while (0)\n\
         int main(void)\n{{\n{calls}return 0;\n}}"
    );
    let (file, program) = (work.join("main.c"), work.join("program"));
    fs::write(&file, main).unwrap();
    let done = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Werror",
            "-Wdeclaration-after-statement",
            "-Wno-unused-function",
        ])
        .args([
            "-Wno-unused-variable",
            "-Wno-unused-const-variable",
            "-Wno-declaration-after-statement",
        ])
        .arg("-I")
        .arg(folder().join("kernel/include"))
        .arg("-o")
        .args([&program, &file])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let done = Command::new(&program).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success());
    String::from_utf8(done.stdout).unwrap()
}

/// Operations that are replaced or added, and errors that are set.
#[test]
fn operations_can_be_refused_replaced_and_added() {
    let text = "%%\n%op:unlink:call { if (!%2) fistReturnErr(-7); fistCall(); fistSetErr(fistLastErr() - 100); }\n\
                %op:lookup:precall { if (%3 == 5) fistReturnErr(-55); }\n\
                %op:lookup:postcall { if (%3 == 6) fistSetErr(-66); }\n\
                %add:super_operations:sync_fs { fistSetErr(%2 + 1); }\n";
    let extension = Extension::parse(Path::new("e.fist"), text.as_bytes().to_vec()).unwrap();
    let kernel = Kernel::read(&folder().join("kernel")).unwrap();
    for (name, calls, wanted) in [
        (
            "macros",
            "struct holder h = { .inode = { .i_nlink = 2 } };\nstruct dentry dentry = { 0 };\n\
             SHOW(sample_inode_operations.unlink(&h.inode, &dentry), r);\n\
             SHOW(sample_inode_operations.unlink(&h.inode, NULL), r);\n",
            "-98\n-7\n",
        ),
        (
            "types",
            "SHOW(sample_inode_operations.lookup(NULL, NULL, 5), r);\n\
             SHOW(sample_inode_operations.lookup(NULL, NULL, 6), r);\n\
             SHOW(sample_inode_operations.lookup(NULL, NULL, 0), r);\n\
             SHOW(sample_sops.sync_fs(NULL, 41), r);\n",
            "-55\n-66\n0\n42\n",
        ),
    ] {
        let work = tempfile::tempdir().unwrap();
        let file = folder().join("pitfalls").join(format!("{name}.c"));
        let made = instrument(&Folder::read(&file).unwrap(), &extension, &kernel, None).unwrap();
        for (path, bytes) in &made.files {
            fs::write(work.path().join(path), bytes).unwrap();
        }
        let source = work.path().join(format!("{name}.c"));
        assert_eq!(run(work.path(), &source, calls, false), wanted, "{name}");
    }
}

/// What differs between a source and its instrumented form, as people would see it; empty if nothing.
fn differs(name: &str, calls: &str) -> Result<String, tacita_fist::Error> {
    let work = tempfile::tempdir().unwrap();
    let file = folder().join("pitfalls").join(format!("{name}.c"));
    let before = run(work.path(), &file, calls, false);
    assert!(before.lines().count() > 1, "the calls were made");
    let extension = Extension::parse(Path::new("counting.fist"), COUNTING.as_bytes().to_vec())?;
    let kernel = Kernel::read(&folder().join("kernel"))?;
    let made = instrument(&Folder::read(&file)?, &extension, &kernel, None)?;
    for (path, bytes) in &made.files {
        fs::write(work.path().join(path), bytes).unwrap();
    }
    let after = run(work.path(), &work.path().join(format!("{name}.c")), calls, true);
    Ok(if before == after { String::new() } else { format!("before:\n{before}after:\n{after}") })
}

#[test]
fn instrumented_sources_do_what_they_did_and_run_the_code_once_for_each_call() {
    for (name, calls) in CALLS {
        assert_eq!(differs(name, calls).unwrap(), "", "{name}");
    }
}

#[cfg(feature = "faults")]
#[test]
fn returns_and_ends_that_are_missed_show() {
    use tacita_fist::faults::{Fault, plant};
    for (fault, number) in [(Fault::ReturnMissed, 0), (Fault::EndMissed, 1)] {
        let (name, calls) = CALLS[number];
        let checked = {
            let _planted = plant(fault);
            differs(name, calls).unwrap_err()
        };
        assert!(!checked.cause().is_empty(), "the check of itself sees {fault:?}");
    }
}
