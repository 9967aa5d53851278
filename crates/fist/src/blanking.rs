//! What is not C to a grammar becomes blanks or plain C of the same length, so that places stay.
//!
//! Kernel sources are C with directives in the middle of lists, macros that take types, loops that are
//! macros and words for other tools. tree-sitter gives up around those; after this it does not.
//! Only the parser sees the result: edits go to the source itself, which is why no byte may move.

use crate::lexer::{Kind, Token, closing};

/// Words that tell compilers and checkers something, and the grammar nothing.
const ATTRIBUTES: [&str; 46] = [
    "__init",
    "__exit",
    "__initdata",
    "__initconst",
    "__exitdata",
    "__refdata",
    "__ref",
    "__ro_after_init",
    "__read_mostly",
    "__user",
    "__kernel",
    "__iomem",
    "__rcu",
    "__force",
    "__percpu",
    "__must_check",
    "__maybe_unused",
    "__always_unused",
    "__used",
    "__cold",
    "__hot",
    "__pure",
    "__weak",
    "__always_inline",
    "noinline",
    "noinline_for_stack",
    "__visible",
    "__sched",
    "__cacheline_aligned",
    "__cacheline_aligned_in_smp",
    "____cacheline_aligned",
    "____cacheline_aligned_in_smp",
    "__latent_entropy",
    "asmlinkage",
    "__randomize_layout",
    "__no_randomize_layout",
    "__packed",
    "__bitwise",
    "__private",
    "__nocast",
    "__safe",
    "__net_init",
    "__net_exit",
    "__nonstring",
    "__deprecated",
    "__malloc",
];

/// The same, with arguments.
const ATTRIBUTES_WITH_ARGUMENTS: [&str; 18] = [
    "__attribute__",
    "__attribute",
    "__printf",
    "__scanf",
    "__releases",
    "__acquires",
    "__must_hold",
    "__cond_acquires",
    "__aligned",
    "__section",
    "__counted_by",
    "__counted_by_le",
    "__counted_by_be",
    "__guarded_by",
    "__alloc_size",
    "__free",
    "__diag_ignore_all",
    "__no_sanitize",
];

/// Words before a round bracket that do not make it the arguments of a macro or function.
const NO_CALLS: [&str; 16] = [
    "if",
    "while",
    "for",
    "switch",
    "return",
    "sizeof",
    "typeof",
    "__typeof__",
    "__typeof",
    "_Alignof",
    "__alignof__",
    "__attribute__",
    "asm",
    "__asm__",
    "case",
    "else",
];

/// Words with which a declaration may begin that are no types.
const STORAGE_WORDS: [&str; 6] = ["static", "extern", "inline", "typedef", "else", "do"];

/// Words that cannot be what a type in front of them declares.
const NO_NAMES: [&str; 16] = [
    "static", "extern", "inline", "void", "char", "short", "int", "long", "signed", "unsigned",
    "float", "double", "_Bool", "struct", "union", "enum",
];

/// Words that are types by themselves to the grammar.
const TYPE_WORDS: [&str; 36] = [
    "char",
    "short",
    "int",
    "long",
    "signed",
    "unsigned",
    "float",
    "double",
    "bool",
    "_Bool",
    "size_t",
    "ssize_t",
    "ptrdiff_t",
    "intptr_t",
    "uintptr_t",
    "charptr_t",
    "nullptr_t",
    "max_align_t",
    "int8_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "char8_t",
    "char16_t",
    "char32_t",
    "char64_t",
    "const",
    "volatile",
    "struct",
    "union",
    "enum",
    "void",
];

/// The source as the parser is shown it: the same length, line ends at the same places.
pub(crate) fn blanked(source: &[u8], tokens: &[Token]) -> Vec<u8> {
    let mut this = Blanking { source, tokens, out: source.to_vec() };
    this.arms();
    this.directives_and_attributes();
    this.arguments();
    this.statements();
    this.out
}

struct Blanking<'a> {
    source: &'a [u8],
    tokens: &'a [Token],
    out: Vec<u8>,
}

impl Blanking<'_> {
    fn word(&self, at: usize) -> Option<&str> {
        let token = self.tokens.get(at).filter(|token| token.kind == Kind::Word)?;
        std::str::from_utf8(token.text(self.source)).ok()
    }

    fn is(&self, at: usize, byte: u8) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(byte))
    }

    fn blank(&mut self, start: usize, end: usize) {
        for byte in &mut self.out[start..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }

    fn blank_tokens(&mut self, first: usize, last: usize) {
        self.blank(self.tokens[first].start, self.tokens[last].end);
    }

    /// Puts a word where a longer or equally long one was.
    fn put(&mut self, at: usize, word: &str) {
        let Token { start, end, .. } = self.tokens[at];
        self.blank(start, end);
        self.out[start..start + word.len()].copy_from_slice(word.as_bytes());
    }

    /// Of conditions whose arms open or close different brackets the first arm stays alone.
    fn arms(&mut self) {
        /// An arm: its tokens, and how many more brackets it opens than it closes.
        type Arm = (usize, usize, i64);
        let mut open: Vec<Vec<Arm>> = Vec::new();
        for (at, token) in self.tokens.iter().enumerate() {
            let step = match token.kind {
                Kind::Punctuation(b'{' | b'(' | b'[') => 1,
                Kind::Punctuation(b'}' | b')' | b']') => -1,
                _ => 0,
            };
            if let Some((_, _, net)) = open.last_mut().and_then(|arms| arms.last_mut()) {
                *net += step;
            }
            if token.kind != Kind::Directive {
                continue;
            }
            let text = String::from_utf8_lossy(token.text(self.source)).into_owned();
            let word = text.trim_start_matches('#').trim_start();
            if word.starts_with("if") {
                open.push(vec![(at, at, 0)]);
            } else if word.starts_with("el") {
                if let Some(arms) = open.last_mut() {
                    if let Some(last) = arms.last_mut() {
                        last.1 = at;
                    }
                    arms.push((at, at, 0));
                }
            } else if word.starts_with("endif")
                && let Some(mut arms) = open.pop()
            {
                if let Some(last) = arms.last_mut() {
                    last.1 = at;
                }
                let first = arms[0].2;
                let differ = arms.len() > 1 && arms.iter().any(|(.., net)| *net != 0);
                let net = if differ { first } else { arms.iter().map(|(.., net)| net).sum() };
                for (from, to, _) in arms.into_iter().skip(1).filter(|_| differ) {
                    self.blank(self.tokens[from].start, self.tokens[to].start);
                }
                if let Some((_, _, around)) = open.last_mut().and_then(|arms| arms.last_mut()) {
                    *around += net;
                }
            }
        }
    }

    fn directives_and_attributes(&mut self) {
        for at in 0..self.tokens.len() {
            let token = self.tokens[at];
            if token.kind == Kind::Directive {
                self.blank(token.start, token.end);
                continue;
            }
            let Some(word) = self.word(at) else { continue };
            if ATTRIBUTES.contains(&word) {
                self.blank_tokens(at, at);
            } else if ATTRIBUTES_WITH_ARGUMENTS.contains(&word)
                && self.is(at + 1, b'(')
                && let Some(end) = closing(self.tokens, at + 1)
            {
                self.blank_tokens(at, end);
            }
        }
    }

    /// Types among the arguments of macros: `max_t(unsigned int, a, b)`, `list_entry(p, struct x, y)`.
    fn arguments(&mut self) {
        for at in 1..self.tokens.len() {
            if !self.is(at, b'(') || self.word(at - 1).is_none_or(|word| NO_CALLS.contains(&word)) {
                continue;
            }
            // The grammar knows it, but not with a member of a member; as a function it takes any.
            if self.word(at - 1) == Some("offsetof") {
                self.put(at - 1, "macro");
            }
            let Some(end) = closing(self.tokens, at) else { continue };
            let (mut first, mut depth) = (at + 1, 0_usize);
            for inner in at + 1..=end {
                match self.tokens[inner].kind {
                    Kind::Punctuation(b'(' | b'[' | b'{') => depth += 1,
                    Kind::Punctuation(b')' | b']' | b'}') if inner < end => {
                        depth = depth.saturating_sub(1);
                    }
                    Kind::Punctuation(b',') if depth == 0 => {
                        self.argument(first, inner);
                        first = inner + 1;
                    }
                    _ => {}
                }
            }
            if first > at + 1 || end > at + 2 || self.word(at + 1) != Some("void") {
                self.argument(first, end);
            }
        }
    }

    /// Blanks what makes the argument of tokens `first..end` a type, if it is one.
    fn argument(&mut self, first: usize, end: usize) {
        let Some(name) = self.type_name(first, end) else { return };
        for at in first..end {
            if at != name {
                self.blank_tokens(at, at);
            }
        }
        if TYPE_WORDS.contains(&self.word(name).unwrap_or_default()) {
            self.put(name, "T");
        }
    }

    /// The token that names the type which the tokens `first..end` are, and nothing else.
    fn type_name(&self, first: usize, end: usize) -> Option<usize> {
        let mut last = end;
        while last > first && self.is(last - 1, b'*') {
            last -= 1;
        }
        let is_type = |at| self.word(at).is_some_and(|word| TYPE_WORDS.contains(&word));
        let words = (first..last).all(|at| self.word(at).is_some());
        if last == first || !words {
            return None;
        }
        let (name, before) = (last - 1, first..last - 1);
        let tagged = |word: Option<&str>| matches!(word, Some("struct" | "union" | "enum"));
        let is_tag = name > first && tagged(self.word(name - 1));
        let is_whole = is_type(name) || is_tag;
        match () {
            // A name behind types is a parameter: `int flags`, `struct inode *dir` has words behind stars.
            () if !is_whole && first + 1 < last => {
                let only_const =
                    before.clone().all(|at| matches!(self.word(at), Some("const" | "volatile")));
                (only_const && last < end).then_some(name)
            }
            () if !is_whole => (last < end).then_some(name),
            () => before.clone().all(is_type).then_some(name),
        }
    }

    /// Macros that are statements or definitions: loops become loops, others go.
    fn statements(&mut self) {
        let mut depth = 0_usize;
        let mut at = 0;
        while at < self.tokens.len() {
            match self.tokens[at].kind {
                Kind::Punctuation(b'{') => depth += 1,
                Kind::Punctuation(b'}') => depth = depth.saturating_sub(1),
                Kind::Word if depth == 0 && self.is_storage_macro(at) => self.blank_tokens(at, at),
                Kind::Word if self.is(at + 1, b'(') && self.begins_statement(at) => {
                    let Some(end) = closing(self.tokens, at + 1) else {
                        at += 1;
                        continue;
                    };
                    if depth == 0 {
                        self.macro_at_top(at, end);
                    } else {
                        self.loop_macro(at, end);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn begins_statement(&self, at: usize) -> bool {
        let Some(before) = (0..at).rev().find(|&before| !self.is_blank(before)) else {
            return true;
        };
        match self.tokens[before].kind {
            Kind::Punctuation(b'{' | b'}' | b';' | b')' | b':') => true,
            Kind::Word => matches!(self.word(before), Some("else" | "do")),
            _ => false,
        }
    }

    /// A word that stands for storage or attributes, such as XFS's `STATIC`: it begins a declaration,
    /// and what follows can only be a type, not what is declared.
    fn is_storage_macro(&self, at: usize) -> bool {
        let Some(word) = self.word(at) else { return false };
        if STORAGE_WORDS.contains(&word) || TYPE_WORDS.contains(&word) || self.is_blank(at) {
            return false;
        }
        let Some(next) = self.next(at).filter(|_| self.begins_statement(at)) else { return false };
        let Some(following) = self.word(next) else { return false };
        if NO_NAMES.contains(&following) {
            return true;
        }
        let is_upper = !word.bytes().any(|b| b.is_ascii_lowercase());
        let declares = self.next(next).is_none_or(|at| {
            matches!(self.tokens[at].kind, Kind::Punctuation(b'(' | b'[' | b'=' | b';' | b','))
        });
        is_upper && !declares
    }

    fn is_blank(&self, at: usize) -> bool {
        let Token { start, end, .. } = self.tokens[at];
        self.out[start..end].iter().all(u8::is_ascii_whitespace)
    }

    /// The next token that the parser will see.
    fn next(&self, after: usize) -> Option<usize> {
        (after + 1..self.tokens.len()).find(|&at| !self.is_blank(at))
    }

    /// `list_for_each_entry(a, b, c) statement` is a loop to the parser.
    fn loop_macro(&mut self, at: usize, end: usize) {
        let Some(word) = self.word(at) else { return };
        if NO_CALLS.contains(&word) || self.is_blank(at) {
            return;
        }
        let Some(next) = self.next(end) else { return };
        let begins = matches!(self.tokens[next].kind, Kind::Word | Kind::Punctuation(b'{'));
        if !begins {
            return;
        }
        let len = word.len();
        match len {
            5.. => self.put(at, "while"),
            2.. => self.put(at, "if"),
            _ => {}
        }
    }

    /// `DEFINE_THINGS(x)` without a semicolon, before the next definition.
    fn macro_at_top(&mut self, at: usize, end: usize) {
        let is_upper =
            self.word(at).is_some_and(|word| !word.bytes().any(|b| b.is_ascii_lowercase()));
        let Some(next) = self.next(end) else {
            self.blank_tokens(at, end);
            return;
        };
        let ends = match self.tokens[next].kind {
            Kind::Word | Kind::Directive => true,
            Kind::Punctuation(b';') => is_upper,
            _ => false,
        };
        if ends {
            self.blank_tokens(at, end);
        }
    }
}

#[cfg(test)]
mod tests;
