//! Small sources, a pitfall each, and what the instrumenter makes of them, to the byte.
//!
//! `TACITA_BLESS=1` writes the patches anew; they are read before they are committed.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::path::{Path, PathBuf};

use tacita_fist::{Extension, Folder, Kernel, Result, difference, instrument};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn patch(name: &str) -> Result<String> {
    let file = folder().join("pitfalls").join(name);
    let source = Folder::read(&file)?;
    let extension = folder().join("pitfalls/trace.fist");
    let extension = Extension::parse(&extension, fs::read(&extension).unwrap())?;
    let kernel = Kernel::read(&folder().join("kernel"))?;
    let made = instrument(&source, &extension, &kernel, None)?;
    let before = [(PathBuf::from(name), fs::read(&file).unwrap())].into();
    let after = [(PathBuf::from(name), made.files[Path::new(name)].clone())].into();
    Ok(difference(&before, &after))
}

#[test]
fn each_pitfall_is_passed_as_written_down() {
    for name in ["returns", "types", "conditions", "macros", "shared", "storage"] {
        let made = patch(&format!("{name}.c")).unwrap_or_else(|error| panic!("{name}: {error}"));
        let file = folder().join("pitfalls").join(format!("{name}.diff"));
        if std::env::var_os("TACITA_BLESS").is_some() {
            fs::write(&file, &made).unwrap();
        }
        let wanted = fs::read_to_string(&file).unwrap();
        assert!(
            made == wanted,
            "{name}: this was made, and is not what {} says:\n{made}",
            file.display()
        );
    }
}

#[cfg(feature = "faults")]
#[test]
fn an_edit_that_lands_elsewhere_and_a_handler_that_is_left_out_show() {
    use tacita_fist::faults::{Fault, plant};
    for (fault, name) in [(Fault::EditShifted, "types"), (Fault::GenericUnwrapped, "conditions")] {
        let wanted = fs::read_to_string(folder().join(format!("pitfalls/{name}.diff"))).unwrap();
        let _planted = plant(fault);
        let made = patch(&format!("{name}.c"));
        assert!(made.is_err() || made.unwrap() != wanted, "{fault:?} shows");
    }
}
