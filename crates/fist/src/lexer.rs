//! Tokens of C with their places: enough to find brackets, words and directives, not to understand.
//!
//! The second opinion beside tree-sitter: what is counted here owes nothing to a grammar.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or keyword.
    Word,
    /// A number.
    Number,
    /// A string or character constant, quotes included.
    Text,
    /// One character of punctuation.
    Punctuation(u8),
    /// A whole preprocessor directive, continuation lines included, without its last line end.
    Directive,
}

/// A token: bytes `start..end` of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Token {
    pub(crate) fn text<'a>(&self, source: &'a [u8]) -> &'a [u8] {
        &source[self.start..self.end]
    }

    pub(crate) fn is(&self, byte: u8) -> bool {
        self.kind == Kind::Punctuation(byte)
    }

    pub(crate) fn is_word(&self, source: &[u8], word: &str) -> bool {
        self.kind == Kind::Word && self.text(source) == word.as_bytes()
    }
}

/// How a file may begin that says so that it is UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Where a source begins.
pub(crate) fn begin(source: &[u8]) -> usize {
    if source.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 }
}

/// The tokens of a source. Comments and blanks are left out; any bytes give tokens.
pub(crate) fn tokens(source: &[u8]) -> Vec<Token> {
    Lexer {
        source,
        at: begin(source),
        line_begins: true,
        found: Vec::with_capacity(source.len() / 4),
    }
    .run()
}

struct Lexer<'a> {
    source: &'a [u8],
    at: usize,
    /// Nothing but blanks and comments since the line began.
    line_begins: bool,
    found: Vec<Token>,
}

impl Lexer<'_> {
    fn run(mut self) -> Vec<Token> {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => {
                    self.line_begins = true;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | b'\x0c' | b'\x0b' => self.at += 1,
                b'\\' if self.line_continues() => {}
                b'/' if matches!(self.peek(1), Some(b'*' | b'/')) => self.comment(),
                b'#' if self.line_begins => self.directive(),
                _ => self.token(byte),
            }
        }
        self.found
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.source.get(self.at + ahead).copied()
    }

    /// Skips a backslash and the line end behind it.
    fn line_continues(&mut self) -> bool {
        let len = match (self.peek(1), self.peek(2)) {
            (Some(b'\n'), _) => 2,
            (Some(b'\r'), Some(b'\n')) => 3,
            _ => return false,
        };
        self.at += len;
        true
    }

    fn comment(&mut self) {
        let is_block = self.peek(1) == Some(b'*');
        self.at += 2;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'*' if is_block && self.peek(1) == Some(b'/') => {
                    self.at += 2;
                    return;
                }
                b'\n' if !is_block => return,
                b'\\' if !is_block && self.line_continues() => {}
                _ => self.at += 1,
            }
        }
    }

    fn directive(&mut self) {
        let start = self.at;
        self.at += 1;
        let mut end = self.at;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => break,
                b'\\' if self.line_continues() => continue,
                b'/' if matches!(self.peek(1), Some(b'*' | b'/')) => self.comment(),
                b'"' | b'\'' => self.text(byte),
                _ => self.at += 1,
            }
            end = self.at;
        }
        self.push(Kind::Directive, start, end);
    }

    fn token(&mut self, byte: u8) {
        self.line_begins = false;
        let start = self.at;
        let kind = match byte {
            b'"' | b'\'' => {
                self.text(byte);
                Kind::Text
            }
            b'0'..=b'9' => {
                self.skip(|b| is_word(b) || b == b'.');
                Kind::Number
            }
            _ if is_word(byte) => {
                self.skip(is_word);
                Kind::Word
            }
            _ => {
                self.at += 1;
                Kind::Punctuation(byte)
            }
        };
        self.push(kind, start, self.at);
    }

    fn push(&mut self, kind: Kind, start: usize, end: usize) {
        self.found.push(Token { kind, start, end });
    }

    fn skip(&mut self, belongs: impl Fn(u8) -> bool) {
        while self.peek(0).is_some_and(&belongs) {
            self.at += 1;
        }
    }

    /// A constant ends with its quote; without one, with its line.
    fn text(&mut self, quote: u8) {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => self.at = (self.at + 2).min(self.source.len()),
                b'\n' => return,
                _ => {
                    self.at += 1;
                    if byte == quote {
                        return;
                    }
                }
            }
        }
    }
}

pub(crate) const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The token that closes the bracket at `open`, of round, square and curly ones.
pub(crate) fn closing(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Punctuation(b'(' | b'[' | b'{') => depth += 1,
            Kind::Punctuation(b')' | b']' | b'}') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source.as_bytes()).iter().map(|token| &source[token.start..token.end]).collect()
    }

    #[test]
    fn words_constants_and_brackets_are_tokens_and_comments_are_not() {
        let source = "int a1 = f('\\'', \"}\\\"\"); /* return; } */ // return\nreturn 0x1F;";
        assert_eq!(
            texts(source),
            [
                "int",
                "a1",
                "=",
                "f",
                "(",
                "'\\''",
                ",",
                "\"}\\\"\"",
                ")",
                ";",
                "return",
                "0x1F",
                ";"
            ]
        );
    }

    #[test]
    fn a_directive_reaches_over_its_continuation_lines() {
        let source = "#define A(x) \\\n\treturn x; /* two\nlines */ }\nint b; a # b";
        assert_eq!(
            texts(source),
            ["#define A(x) \\\n\treturn x; /* two\nlines */ }", "int", "b", ";", "a", "#", "b"]
        );
    }

    #[test]
    fn what_is_open_at_the_end_does_no_harm() {
        for source in ["/* ", "\"abc", "'", "#define x \\", "\\", "a /", "\"\\"] {
            let _ = tokens(source.as_bytes());
        }
    }

    #[test]
    fn brackets_are_matched() {
        let found = tokens(b"f(a[1], {2}) ]");
        assert_eq!(closing(&found, 1), Some(found.len() - 2));
        assert_eq!(closing(&found, found.len() - 1), None);
    }
}
