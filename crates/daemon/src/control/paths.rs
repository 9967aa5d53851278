//! Paths in JSON, which has no place for names that are not UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A path as a string; one that is not UTF-8 as its `bytes` in hexadecimal and how it is `shown`.
pub fn path_to_json(path: &Path) -> Value {
    if let Some(text) = path.to_str() {
        return text.into();
    }
    let bytes = path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}"));
    json!({ "bytes": bytes.collect::<String>(), "shown": path.to_string_lossy() })
}

/// The path that was made so; `None` if it is none.
pub fn path_of_json(value: &Value) -> Option<PathBuf> {
    if let Some(text) = value.as_str() {
        return Some(text.into());
    }
    let (digits, rest) = value["bytes"].as_str()?.as_bytes().as_chunks::<2>();
    let digit =
        |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |&[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
    let bytes = digits.iter().map(byte).collect::<Option<Vec<u8>>>()?;
    rest.is_empty().then(|| OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_comes_back() {
        for bytes in [&b"/a/b"[..], b"", b"/\xff\x00x", b"\xc3\xa4", b"\xc3"] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            assert_eq!(path_of_json(&path_to_json(&path)), Some(path));
        }
        assert_eq!(path_to_json(Path::new("/a")), "/a");
        let odd = json!({ "bytes": "2fff", "shown": "/\u{fffd}" });
        assert_eq!(path_to_json(&PathBuf::from(OsString::from_vec(b"/\xff".to_vec()))), odd);
        for bytes in ["f", "zz", "+1"] {
            assert_eq!(path_of_json(&json!({ "bytes": bytes })), None);
        }
        assert_eq!(path_of_json(&Value::Null), None);
    }
}
