//! Which patterns go over what is deleted, and in which order.
//!
//! Paper: Purgefs, Table 1, methods c, d, e, f and h. Deviation: D-01 and D-02 in
//! docs/design/purge.md (the default; what method f is here).

use std::fmt;
use std::str::FromStr;

use crate::{Error, Kind, Result};

/// Most passes that a method of one's own may have: more serve nobody.
pub const PASS_COUNT_MAX: usize = 35;

/// Longest text of a method: 35 passes of three characters and the prefix.
pub const METHOD_LEN_MAX: usize = 128;

/// What one pass writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// One character everywhere.
    Byte(u8),
    /// A stream that cannot be told from random bytes, new for every pass of every file.
    Random,
}

/// An ordered list of passes, and whether the last one is read back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Method {
    text: String,
    passes: Vec<Pattern>,
    verify: bool,
    hold: bool,
}

impl Method {
    /// One pass of zeros, read back: the default.
    pub fn clear() -> Self {
        Self::fixed("clear", &[Pattern::Byte(0)], true)
    }

    fn fixed(text: &str, passes: &[Pattern], verify: bool) -> Self {
        Self { text: text.to_owned(), passes: passes.to_vec(), verify, hold: false }
    }

    /// What each pass writes, in order; never empty.
    pub fn passes(&self) -> &[Pattern] {
        &self.passes
    }

    /// Whether the method itself asks for the last pass to be read back. The proof that the old
    /// blocks were reached is given for every method.
    pub const fn verifies(&self) -> bool {
        self.verify
    }

    /// Whether the overwritten file is to be kept for as long as the data was (method f).
    pub const fn holds(&self) -> bool {
        self.hold
    }
}

impl Default for Method {
    fn default() -> Self {
        Self::clear()
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        use Pattern::{Byte, Random};
        Ok(match text {
            "clear" => Self::clear(),
            "zero" | "c" => Self::fixed(text, &[Byte(0)], false),
            "random" => Self::fixed(text, &[Random], false),
            "d" => Self::fixed(text, &[Byte(0x55), Byte(0xAA), Random], true),
            "e" => Self::fixed(text, &[Byte(0x55), Byte(0xAA), Random], false),
            "f" => Self { hold: true, ..Self::fixed(text, &[Byte(0)], false) },
            "h" => Self::fixed(text, &[Random, Byte(0), Byte(0xFF)], false),
            _ => match text.strip_prefix("custom:") {
                Some(list) => custom(text, list)?,
                None => {
                    return Err(Error::new(
                        Kind::Invalid,
                        format!(
                            "{text:?} is no method; there are clear, zero, random, c, d, e, f, h \
                             and custom:LIST"
                        ),
                    ));
                }
            },
        })
    }
}

/// A list such as `55,AA,R,V`: characters in hexadecimal, R for random, V at the end to verify.
fn custom(text: &str, list: &str) -> Result<Method> {
    let refuse = |why: String| Error::new(Kind::Invalid, format!("method {text:?}: {why}"));
    if text.len() > METHOD_LEN_MAX {
        return Err(refuse(format!("longer than {METHOD_LEN_MAX} characters")));
    }
    let mut passes = Vec::new();
    let mut verify = false;
    for item in list.split(',') {
        if verify {
            return Err(refuse("V must come last".to_owned()));
        }
        match item {
            "V" | "v" => verify = true,
            "R" | "r" => passes.push(Pattern::Random),
            _ if item.len() == 2 && item.bytes().all(|b| b.is_ascii_hexdigit()) => {
                let byte = u8::from_str_radix(item, 16).map_err(|e| refuse(e.to_string()))?;
                passes.push(Pattern::Byte(byte));
            }
            _ => {
                let why = format!("{item:?} is neither two hexadecimal digits nor R nor V");
                return Err(refuse(why));
            }
        }
    }
    if passes.is_empty() || passes.len() > PASS_COUNT_MAX {
        return Err(refuse(format!("it needs 1 to {PASS_COUNT_MAX} passes")));
    }
    Ok(Method { text: text.to_owned(), passes, verify, hold: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Pattern::{Byte, Random};

    fn passes(text: &str) -> (Vec<Pattern>, bool) {
        let method: Method = text.parse().unwrap();
        assert_eq!(method.to_string(), text);
        (method.passes().to_vec(), method.verifies())
    }

    #[test]
    fn table_1_of_the_paper() {
        assert_eq!(passes("c"), (vec![Byte(0)], false));
        assert_eq!(passes("d"), (vec![Byte(0x55), Byte(0xAA), Random], true));
        assert_eq!(passes("e"), (vec![Byte(0x55), Byte(0xAA), Random], false));
        assert_eq!(passes("h"), (vec![Random, Byte(0), Byte(0xFF)], false));
        assert!("f".parse::<Method>().unwrap().holds());
        assert_eq!(passes("clear"), (vec![Byte(0)], true));
        assert_eq!(Method::default(), "clear".parse().unwrap());
    }

    #[test]
    fn lists_of_ones_own() {
        assert_eq!(passes("custom:55,aa,R,V"), (vec![Byte(0x55), Byte(0xAA), Random], true));
        for wrong in ["", "x", "custom:", "custom:5", "custom:V", "custom:V,55", "custom:+5", "C"] {
            let error = wrong.parse::<Method>().unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{wrong}");
        }
        let long = format!("custom:{}", vec!["55"; PASS_COUNT_MAX + 1].join(","));
        assert!(long.parse::<Method>().is_err());
    }
}
