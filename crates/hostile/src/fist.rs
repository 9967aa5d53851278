//! Extensions and sources that are neither.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tacita_fist::{Extension, Folder, Kernel, instrument};

static KERNEL: LazyLock<Kernel> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fist/tests/kernel");
    Kernel::read(&folder).unwrap()
});

const SOURCE: &str = "static int a_open(struct inode *inode, struct file *file)\n{\n\treturn 0;\n}\n\
     static const struct file_operations a_fops = {\n\t.open = a_open,\n};\n";
const EXTENSION: &str =
    "%%\n%op:all:precall { f($0, %op); }\n%op:all:postcall { g(fistLastErr()); }\n";

fn folder(bytes: &[u8]) -> tacita_fist::Result<Folder> {
    Folder::of(Path::new("a"), BTreeMap::from([(PathBuf::from("a.c"), bytes.to_vec())]))
}

/// Bytes as an extension, for a plain source.
pub fn extension(bytes: &[u8]) {
    match Extension::parse(Path::new("e.fist"), bytes.to_vec()) {
        Ok(extension) => {
            let source = folder(SOURCE.as_bytes()).unwrap();
            let _ = instrument(&source, &extension, &KERNEL, None);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Bytes as a source, which is blanked, parsed and instrumented with an ordinary extension; what is
/// instrumented is C to the same method again.
pub fn source(bytes: &[u8]) {
    let extension = Extension::parse(Path::new("e.fist"), EXTENSION.into()).unwrap();
    let Ok(source) = folder(bytes) else { return };
    let _ = (source.vectors(), source.understanding());
    if let Ok(made) = instrument(&source, &extension, &KERNEL, None) {
        assert!(made.report.vectors > 0 || made.report.wrappers == 0);
    }
}
