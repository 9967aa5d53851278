//! The last messages.

use std::collections::VecDeque;

use log::Level;
use serde_json::{Value, json};

use super::word;

/// Messages that are kept.
const KEPT_COUNT: usize = 64;

/// Bytes of one that are kept.
const TEXT_LEN_MAX_BYTES: usize = 512;

/// What was said, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// When it was said last, in seconds since 1970.
    pub at: u64,
    /// How bad it is.
    pub level: Level,
    /// What was said.
    pub text: String,
    /// How often in a row.
    pub count: u64,
}

impl Message {
    /// `at`, `level`, `text`, `count`.
    pub fn json(&self) -> Value {
        json!({
            "at": self.at,
            "level": word(self.level),
            "text": self.text,
            "count": self.count,
        })
    }
}

#[derive(Debug)]
pub(super) struct Messages {
    kept: VecDeque<Message>,
}

impl Messages {
    pub(super) const fn new() -> Self {
        Self { kept: VecDeque::new() }
    }

    /// Keeps a message; whether it is another than the last one.
    pub(super) fn add(&mut self, at: u64, level: Level, text: &str) -> bool {
        let text = shortened(text);
        if let Some(last) = self.kept.back_mut()
            && last.level == level
            && last.text == text
        {
            last.at = at;
            last.count += 1;
            return false;
        }
        if self.kept.len() == KEPT_COUNT {
            self.kept.pop_front();
        }
        self.kept.push_back(Message { at, level, text: text.to_owned(), count: 1 });
        true
    }

    pub(super) fn last(&self) -> Vec<Message> {
        self.kept.iter().cloned().collect()
    }
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(TEXT_LEN_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_ones_are_counted_and_old_ones_go() {
        let mut messages = Messages::new();
        assert!(messages.add(1, Level::Warn, "a"));
        assert!(!messages.add(2, Level::Warn, "a"));
        assert!(messages.add(3, Level::Error, "a"));
        let (first, second) = (&messages.last()[0], &messages.last()[1]);
        assert_eq!((first.at, first.count, first.level), (2, 2, Level::Warn));
        assert_eq!((second.count, second.level), (1, Level::Error));
        for n in 0..KEPT_COUNT {
            messages.add(4, Level::Warn, &n.to_string());
        }
        assert_eq!(messages.last().len(), KEPT_COUNT);
        assert_eq!(messages.last()[0].text, "0");
    }

    #[test]
    fn long_ones_are_truncated_between_characters() {
        let long = "\u{e4}".repeat(TEXT_LEN_MAX_BYTES);
        let mut messages = Messages::new();
        messages.add(1, Level::Warn, &format!("x{long}"));
        assert_eq!(messages.last()[0].text.len(), TEXT_LEN_MAX_BYTES - 1);
    }
}
