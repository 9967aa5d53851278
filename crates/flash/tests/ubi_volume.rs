//! What is no volume of UBI. Those that are come in the kernel lab, `crates/flash/lab`.

use tacita_flash::{Kind, UbiVolume};

#[test]
fn other_files_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (path, expected) in [
        (file.path().to_str().unwrap(), "no volume of UBI"),
        ("/", "no volume of UBI"),
        ("/dev/null", "no volume of UBI"),
        // Without a terminal it cannot be opened: nothing is, that is something else.
        ("/dev/tty", "no volume of UBI"),
        ("/dev/nowhere", "cannot open /dev/nowhere"),
    ] {
        let error = UbiVolume::open(path).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
