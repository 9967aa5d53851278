//! Bytes of requests and answers.

use serde_json::{Map, Value, json};

use crate::Failure;

/// Version of the protocol: raised when a client of before would misunderstand.
pub(super) const VERSION: u64 = 1;

/// Longest request in bytes, with its end of line.
pub(super) const REQUEST_LEN_MAX_BYTES: u64 = 4096;

/// Longest answer in bytes, all lines together but those of progress.
pub(super) const ANSWER_LEN_MAX_BYTES: u64 = 1 << 20;

/// What a daemon is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub word: String,
    /// How.
    pub arguments: Map<String, Value>,
}

impl Request {
    /// A request for `word`; `arguments` is an object, or null.
    pub fn new(word: impl Into<String>, arguments: Value) -> Self {
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        Self { word: word.into(), arguments }
    }

    /// A request for `word` without arguments.
    pub fn plain(word: impl Into<String>) -> Self {
        Self { word: word.into(), arguments: Map::new() }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// [`crate::exit::USAGE`] if it is no request, or of another version.
    pub fn parse(line: &[u8]) -> Result<Self, Failure> {
        let not_one = || Failure::usage("not a request");
        let value: Value = serde_json::from_slice(line).map_err(|_| not_one())?;
        match value["tacita"].as_u64() {
            None => return Err(not_one()),
            Some(VERSION) => {}
            Some(other) => {
                let cause =
                    format!("a request of version {other}; this daemon speaks version {VERSION}");
                return Err(Failure::usage(cause)
                    .with_remedy("use the program that the daemon was started with"));
            }
        }
        let word = value["request"].as_str().ok_or_else(not_one)?;
        Ok(Self::new(word, value["arguments"].clone()))
    }

    pub(super) fn line(&self) -> String {
        let value = json!({ "tacita": VERSION, "request": self.word, "arguments": self.arguments });
        format!("{value}\n")
    }

    /// An argument that is a word.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name)?.as_str()
    }

    /// Whether an argument is `true`.
    pub fn is_set(&self, name: &str) -> bool {
        self.arguments.get(name) == Some(&Value::Bool(true))
    }

    /// An argument that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.arguments.get(name)?.as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    #[test]
    fn a_request_comes_back_as_it_was() {
        let request =
            Request::new("sweep", json!({ "rate": 7, "public_only": true, "rest": "drop" }));
        let back = Request::parse(request.line().trim_end().as_bytes()).unwrap();
        assert_eq!(back, request);
        assert_eq!(back.number("rate"), Some(7));
        assert!(back.is_set("public_only") && !back.is_set("rate"));
        assert_eq!(back.text("rest"), Some("drop"));
    }

    #[test]
    fn the_document_says_the_same() {
        let document = include_str!("../../../../docs/spec/control.md");
        let request = Request::new("log", json!({ "level": "info" }));
        assert!(document.contains(&request.line()));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for line in [&b""[..], b"\xff", b"status", b"{}", b"[1]", b"{\"tacita\":1}"] {
            assert_eq!(Request::parse(line).unwrap_err().code, exit::USAGE);
        }
        let newer = Request::parse(b"{\"tacita\":2,\"request\":\"status\"}").unwrap_err();
        assert!(newer.cause.contains("version 2"), "{newer:?}");
    }
}
