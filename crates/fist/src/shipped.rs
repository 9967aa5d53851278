//! Extensions that come with the program, and a file system that is small enough to be shown.

/// Their names and texts.
pub const SHIPPED: [(&str, &str); 3] = [
    ("trace", include_str!("../extensions/trace.fist")),
    ("purge", include_str!("../extensions/purge.fist")),
    ("readonly", include_str!("../extensions/readonly.fist")),
];

/// A source of a file system, and the kernel's header for it: `sample.c` and `include/linux/fs.h`.
pub const EXAMPLE: (&str, &str) =
    (include_str!("../example/sample.c"), include_str!("../example/include/linux/fs.h"));

/// The text of the one of this name.
pub fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_extensions() {
        for (name, text) in SHIPPED {
            let file = format!("{name}.fist");
            let read = crate::Extension::parse(file.as_ref(), text.as_bytes().to_vec());
            let extension = read.unwrap_or_else(|error| panic!("{error}"));
            assert!(!extension.is_empty());
            assert_eq!(extension.name(), name);
        }
        assert_eq!(shipped("none"), None);
    }
}
