//! Which files are purged, and how.
//!
//! In this order: the attribute `user.purge` of the file, that of its folder, the first rule that
//! fits, the mark of `chattr +s`, and what the mount says.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use glob::{MatchOptions, Pattern};
use tacita_block::size;

use crate::method::Method;
use crate::{Error, Kind, Result};

/// The attribute that names a method, or `off`.
pub const POLICY_ATTRIBUTE: &str = "user.purge";

/// What says that a file is not to be purged.
const OFF: &str = "off";

/// `*` stops at a slash, and a leading dot is nothing special.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// What is done when a file cannot be purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// It stays, and the program gets an error.
    #[default]
    Fail,
    /// It is deleted all the same, and the verdict says so.
    Warn,
}

/// A line of a file of rules: a pattern, perhaps bounds of size, and a method or `off`.
#[derive(Debug, Clone)]
pub struct Rule {
    pattern: Pattern,
    whole_path: bool,
    size_min: u64,
    size_max: u64,
    method: Option<Method>,
}

/// All that decides.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// What is used where nothing else is said.
    pub method: Method,
    /// Only what is marked or named by a rule.
    pub marked_only: bool,
    /// Rules, the first that fits counts.
    pub rules: Vec<Rule>,
    /// What is done when a file cannot be purged.
    pub on_failure: OnFailure,
}

/// What is known of a file; what costs a call is asked only when needed.
pub(crate) struct Facts<'a> {
    /// Path below the mount.
    pub(crate) path: &'a Path,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Value of the attribute, of the file or of its folder.
    pub(crate) attribute: &'a dyn Fn() -> Option<Vec<u8>>,
    /// Whether it has the mark of `chattr +s`.
    pub(crate) marked: &'a dyn Fn() -> bool,
}

impl Policy {
    /// How a file is purged; `None` if it is not.
    pub(crate) fn decide(&self, facts: &Facts<'_>) -> Option<Method> {
        if let Some(value) = (facts.attribute)() {
            return match std::str::from_utf8(&value).map(str::trim) {
                Ok(OFF) => None,
                // Somebody wants it purged: a method that nobody knows is no reason not to.
                Ok(text) => Some(text.parse().unwrap_or_else(|_| self.method.clone())),
                Err(_) => Some(self.method.clone()),
            };
        }
        if let Some(rule) = self.rules.iter().find(|rule| rule.fits(facts)) {
            return rule.method.clone();
        }
        (!self.marked_only || (facts.marked)()).then(|| self.method.clone())
    }
}

impl Rule {
    fn fits(&self, facts: &Facts<'_>) -> bool {
        if facts.size < self.size_min || facts.size > self.size_max {
            return false;
        }
        let text = if self.whole_path {
            facts.path.as_os_str().as_bytes()
        } else {
            facts.path.file_name().unwrap_or_default().as_bytes()
        };
        self.pattern.matches_with(&String::from_utf8_lossy(text), MATCHING)
    }
}

/// Reads a file of rules: one a line, `PATTERN [MIN..MAX] METHOD|off`, `#` begins a comment.
///
/// A pattern with a slash is matched with the path below the mount, else with the name alone.
///
/// # Errors
/// [`Kind::Invalid`], with the number of the line.
pub fn parse_rules(text: &str) -> Result<Vec<Rule>> {
    // Some editors begin a text with a mark, which is no part of the first pattern.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = (1..).zip(text.lines());
    let meant = lines.map(|(number, line)| (number, line.trim()));
    meant
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            parse_rule(line)
                .map_err(|why| Error::new(Kind::Invalid, format!("rules, line {number}: {why}")))
        })
        .collect()
}

fn parse_rule(line: &str) -> std::result::Result<Rule, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (pattern, bounds, method) = match words[..] {
        [pattern, method] => (pattern, "..", method),
        [pattern, bounds, method] => (pattern, bounds, method),
        _ => return Err("expected PATTERN [MIN..MAX] METHOD|off".to_owned()),
    };
    let (low, high) = bounds.split_once("..").ok_or("bounds of size are written MIN..MAX")?;
    let size_min = if low.is_empty() { 0 } else { size::parse(low)? };
    let size_max = if high.is_empty() { u64::MAX } else { size::parse(high)? };
    if size_min > size_max {
        return Err(format!("no size is within {bounds}"));
    }
    let whole_path = pattern.contains('/');
    Ok(Rule {
        pattern: Pattern::new(pattern.trim_start_matches('/')).map_err(|e| e.to_string())?,
        whole_path,
        size_min,
        size_max,
        method: match method {
            OFF => None,
            method => Some(method.parse().map_err(|e: Error| e.to_string())?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(policy: &Policy, path: &str, size: u64, attribute: Option<&str>) -> Option<String> {
        let facts = Facts {
            path: Path::new(path),
            size,
            attribute: &|| attribute.map(|value| value.as_bytes().to_vec()),
            marked: &|| path.contains("marked"),
        };
        policy.decide(&facts).map(|method| method.to_string())
    }

    #[test]
    fn a_mark_of_an_editor_is_no_part_of_the_first_pattern() {
        let policy =
            Policy { rules: parse_rules("\u{feff}*.tmp off\r\n").unwrap(), ..Policy::default() };
        assert_eq!(decide(&policy, "a/b.tmp", 1, None), None);
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let text = "# temporary files\n*.tmp off\n\n/keys/**/*.pem h\n* 1M.. e\n*.log ..10K zero\n";
        let policy = Policy { rules: parse_rules(text).unwrap(), ..Policy::default() };
        assert_eq!(decide(&policy, "a/b.tmp", 1, None), None);
        assert_eq!(decide(&policy, "keys/x/y.pem", 1, None).as_deref(), Some("h"));
        assert_eq!(decide(&policy, "other/y.pem", 1, None).as_deref(), Some("clear"));
        assert_eq!(decide(&policy, "a/big", 2 << 20, None).as_deref(), Some("e"));
        assert_eq!(decide(&policy, "a/x.log", 10, None).as_deref(), Some("zero"));
        assert_eq!(decide(&policy, "a/x.log", 20 << 10, None).as_deref(), Some("clear"));
    }

    #[test]
    fn attributes_come_before_rules_and_marks_before_nothing() {
        let rules = parse_rules("*.tmp off").unwrap();
        let policy = Policy { rules, marked_only: true, ..Policy::default() };
        assert_eq!(decide(&policy, "x.tmp", 1, Some("d\n")).as_deref(), Some("d"));
        assert_eq!(decide(&policy, "x", 1, Some("off")), None);
        assert_eq!(decide(&policy, "x", 1, Some("nonsense")).as_deref(), Some("clear"));
        assert_eq!(decide(&policy, "x", 1, None), None);
        assert_eq!(decide(&policy, "marked", 1, None).as_deref(), Some("clear"));
    }

    #[test]
    fn wrong_rules_name_their_line() {
        for wrong in
            ["x", "* what", "[ zero", "* 1..2..3 4 zero", "* 5X.. zero", "* 5 zero", "* 2..1 e"]
        {
            let error = parse_rules(&format!("# one\n{wrong}")).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains("line 2"), "{error}");
        }
    }
}
