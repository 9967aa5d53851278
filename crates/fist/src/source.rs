//! One file of C: its functions with their returns, its vectors, what could not be parsed.

use std::ops::Range;
use std::path::{Path, PathBuf};

use tree_sitter::{Node, Parser};

use crate::blanking::blanked;
use crate::error::{Error, Kind, Place, Result};
use crate::faults::{Fault, planted};
use crate::initialiser::{self, Initialiser};
use crate::lexer::{self, Token, tokens};

/// Words of a definition that say nothing about the type of its value.
const STORAGE: [&str; 12] = [
    "static",
    "inline",
    "extern",
    "__inline",
    "__inline__",
    "noinline",
    "asmlinkage",
    "__init",
    "__exit",
    "__always_inline",
    "noinline_for_stack",
    "__must_check",
];

/// A parsed file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the folder of the file system.
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) functions: Vec<Function>,
    pub(crate) initialisers: Vec<Initialiser>,
    /// Structures of vectors' types that are not initialised where they are declared.
    pub(crate) bare: Vec<Bare>,
}

/// A structure that is filled by assignments, if by anything.
#[derive(Debug)]
pub(crate) struct Bare {
    pub(crate) type_name: String,
    pub(crate) name: String,
    pub(crate) range: Range<usize>,
    /// A part of another structure or of a function's stack, so that it cannot be a mere announcement.
    pub(crate) is_inner: bool,
}

/// A function that is defined here. Ranges are of bytes.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) name_range: Range<usize>,
    pub(crate) is_static: bool,
    /// Of its value, as C, with qualifiers and stars.
    pub(crate) return_type: String,
    pub(crate) parameters: Vec<Parameter>,
    /// Braces included.
    pub(crate) body: Range<usize>,
    pub(crate) returns: Vec<Return>,
    /// The last statement is a return.
    pub(crate) ends_with_return: bool,
    /// The first place in it that the parser did not understand.
    pub(crate) error: Option<Range<usize>>,
    /// A function within the function.
    pub(crate) nested: Option<Range<usize>>,
}

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// As C, without the name.
    pub(crate) type_text: String,
    /// Empty if it has none.
    pub(crate) name: String,
}

/// A return statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Return {
    /// From the keyword to behind the semicolon.
    pub(crate) range: Range<usize>,
    pub(crate) has_value: bool,
    /// The value has a comma outside of brackets.
    pub(crate) has_comma: bool,
}

impl Source {
    pub(crate) fn parse(path: &Path, bytes: Vec<u8>) -> Result<Self> {
        let tokens = tokens(&bytes);
        let shown = blanked(&bytes, &tokens);
        let mut parser = Parser::new();
        let unusable = |_| Error::new(Kind::Source, "the grammar of C does not fit its parser");
        parser.set_language(&tree_sitter_c::LANGUAGE.into()).map_err(unusable)?;
        let tree = parser.parse(&shown, None).ok_or_else(|| {
            Error::new(Kind::Source, format!("{}: cannot be parsed", path.display()))
        })?;
        let mut this = Self {
            path: path.to_owned(),
            bytes,
            tokens,
            functions: Vec::new(),
            initialisers: Vec::new(),
            bare: Vec::new(),
        };
        this.walk(tree.root_node(), &shown);
        Ok(this)
    }

    /// The place of a range, for errors.
    pub(crate) fn place(&self, range: &Range<usize>) -> Place {
        Place::of(&self.path, &self.bytes, range.start, range.end)
    }

    /// An error about a range.
    pub(crate) fn refuse(&self, range: &Range<usize>, cause: impl Into<String>) -> Error {
        Error::new(Kind::Source, cause).at(self.place(range))
    }

    pub(crate) fn text(&self, range: &Range<usize>) -> &str {
        std::str::from_utf8(&self.bytes[range.clone()]).unwrap_or_default()
    }

    /// The tokens that lie in a range.
    pub(crate) fn tokens_in(&self, range: &Range<usize>) -> &[Token] {
        let first = self.tokens.partition_point(|token| token.start < range.start);
        let last = self.tokens.partition_point(|token| token.end <= range.end);
        &self.tokens[first..last.max(first)]
    }

    /// Whether directives between the first token of a range and its last one split it: they begin
    /// within a condition and end outside of it, or the other way round, or have an `else` around them.
    pub(crate) fn is_split(&self, range: &Range<usize>) -> bool {
        let mut depth = 0_usize;
        for (token, words) in self.directives() {
            if token.start < range.start || token.start >= range.end {
                continue;
            }
            match words.first() {
                Some(&("if" | "ifdef" | "ifndef")) => depth += 1,
                Some(&"endif") if depth > 0 => depth -= 1,
                Some(&("else" | "elif" | "elifdef" | "elifndef")) if depth > 0 => {}
                Some(&("endif" | "else" | "elif" | "elifdef" | "elifndef")) => return true,
                _ => {}
            }
        }
        depth > 0
    }

    /// The first structure of one of these types in an expression, or under another name of the type.
    pub(crate) fn hidden_vector(&self, types: &[&str]) -> Option<Range<usize>> {
        let is = |at: usize, words: &[&str]| {
            let token = self.tokens.get(at);
            token.is_some_and(|t| words.iter().any(|word| t.is_word(&self.bytes, word)))
        };
        let found = (0..self.tokens.len()).find(|&at| {
            if !is(at, &["struct"]) || !is(at + 1, types) {
                return false;
            }
            let marks = |from: usize, marks: &[u8]| {
                marks
                    .iter()
                    .zip(from..)
                    .all(|(mark, at)| self.tokens.get(at).is_some_and(|token| token.is(*mark)))
            };
            let is_named = self.tokens.get(at + 2).is_some_and(|t| t.kind == lexer::Kind::Word);
            let mut first = at;
            while first > 0 && is(first - 1, &["const", "volatile"]) {
                first -= 1;
            }
            marks(at + 2, b"){")
                || marks(at + 2, b"[]){")
                || is_named && first > 0 && is(first - 1, &["typedef"])
        })?;
        Some(self.tokens[found].start..self.tokens[found + 1].end)
    }

    /// Whether another body follows that of a function: which one is its own a condition says.
    pub(crate) fn has_second_body(&self, function: &Function) -> bool {
        let behind = self.tokens.partition_point(|token| token.start < function.body.end);
        let mut rest = self.tokens[behind..].iter().filter(|t| t.kind != lexer::Kind::Directive);
        rest.next().is_some_and(|token| token.is(b'{'))
    }

    /// Returns by the second method: words in the function's body, whatever the parser says.
    pub(crate) fn returns_by_words(&self, function: &Function) -> usize {
        self.tokens_in(&function.body).iter().filter(|t| t.is_word(&self.bytes, "return")).count()
    }

    /// Directives with their words, the first without its mark.
    pub(crate) fn directives(&self) -> impl Iterator<Item = (&Token, Vec<&str>)> {
        self.tokens.iter().filter(|token| token.kind == lexer::Kind::Directive).map(|token| {
            let text = self.text(&(token.start..token.end));
            let text = text.trim_start_matches('#');
            let is_gap = |c: char| !(c.is_alphanumeric() || c == '_');
            (token, text.split(is_gap).filter(|word| !word.is_empty()).collect())
        })
    }

    /// Conditions of the preprocessor that hold at `at` and were not open at `from`: of each the
    /// directives up to there.
    pub(crate) fn conditions(&self, from: usize, at: usize) -> Vec<Vec<String>> {
        let mut open: Vec<Vec<String>> = Vec::new();
        for (token, words) in self.directives() {
            if token.start < from || token.start >= at {
                continue;
            }
            let line = || self.text(&(token.start..token.end)).to_owned();
            match words.first() {
                Some(&("if" | "ifdef" | "ifndef")) => open.push(vec![line()]),
                Some(&("else" | "elif")) => {
                    if let Some(last) = open.last_mut() {
                        last.push(line());
                    }
                }
                Some(&"endif") => {
                    open.pop();
                }
                _ => {}
            }
        }
        open
    }

    fn walk(&mut self, root: Node<'_>, shown: &[u8]) {
        let mut cursor = root.walk();
        let mut todo: Vec<Node<'_>> = root.children(&mut cursor).collect();
        todo.reverse();
        while let Some(node) = todo.pop() {
            match node.kind() {
                "function_definition" => {
                    if let Some(function) = self.function(node, shown) {
                        self.functions.push(function);
                    }
                    self.locals(node);
                }
                "declaration" | "field_declaration" => {
                    initialiser::collect(self, node, false);
                    self.members(node);
                }
                "comment" | "expression_statement" | "preproc_include" => {}
                _ => {
                    let mut cursor = node.walk();
                    let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
                    todo.extend(children.into_iter().rev());
                }
            }
        }
    }

    /// Vectors among the variables of a function.
    fn locals(&mut self, function: Node<'_>) {
        for node in all(function, |kind| kind == "declaration") {
            initialiser::collect(self, node, true);
        }
    }

    /// Vectors that are parts of structures defined here.
    fn members(&mut self, declaration: Node<'_>) {
        for node in all(declaration, |kind| kind == "field_declaration") {
            initialiser::collect(self, node, true);
        }
    }

    fn function(&self, node: Node<'_>, shown: &[u8]) -> Option<Function> {
        let body = node.child_by_field_name("body")?;
        let mut declarator = node.child_by_field_name("declarator")?;
        while declarator.kind() != "function_declarator" {
            // A function that returns a pointer to a function has one more of them within brackets.
            declarator = declarator.child_by_field_name("declarator")?;
        }
        let name =
            declarator.child_by_field_name("declarator").filter(|n| n.kind() == "identifier")?;
        let list = declarator.child_by_field_name("parameters")?;
        let mut cursor = list.walk();
        let parameters = list
            .children(&mut cursor)
            .filter(|child| matches!(child.kind(), "parameter_declaration" | "variadic_parameter"))
            .map(|child| self.parameter(child))
            .filter(|parameter| parameter.type_text != "void")
            .collect();
        let head = self.head(shown, name.start_byte());
        let error =
            body.has_error().then(|| first_error(body).unwrap_or_else(|| body.byte_range()));
        let mut returns: Vec<Return> = all(body, |kind| kind == "return_statement")
            .into_iter()
            .filter(|found| !found.has_error())
            .map(to_return)
            .collect();
        returns.sort_by_key(|found| found.range.start);
        if planted(Fault::ReturnMissed) {
            returns.pop();
        }
        Some(Function {
            name: self.text(&name.byte_range()).to_owned(),
            name_range: name.byte_range(),
            is_static: head.iter().any(|token| token.is_word(&self.bytes, "static")),
            return_type: value_type(&self.bytes, &head),
            parameters,
            body: body.byte_range(),
            returns,
            ends_with_return: last_statement(body).is_some_and(|last| {
                // Behind a directive it may be left out, and what is before it is the end.
                let rest = last.end_byte()..body.end_byte();
                last.kind() == "return_statement" && self.tokens_in(&rest).len() == 1
            }),
            error,
            nested: all(body, |kind| kind == "function_definition").first().map(Node::byte_range),
        })
    }

    /// The words and stars before the name of a function that the parser was shown, whatever it took
    /// them for.
    fn head(&self, shown: &[u8], name: usize) -> Vec<Token> {
        let before = &self.tokens[..self.tokens.partition_point(|token| token.start < name)];
        let is_blank =
            |token: &&Token| shown[token.start..token.end].iter().all(u8::is_ascii_whitespace);
        let of_type = |token: &&Token| token.kind == lexer::Kind::Word || token.is(b'*');
        let mut head: Vec<Token> = before
            .iter()
            .rev()
            .filter(|token| !is_blank(token))
            .take_while(of_type)
            .copied()
            .collect();
        head.reverse();
        head
    }

    fn parameter(&self, node: Node<'_>) -> Parameter {
        let name = node.child_by_field_name("declarator").and_then(innermost_name);
        let range = name.map_or(0..0, |name| name.byte_range());
        let tokens: Vec<Token> = self
            .tokens_in(&node.byte_range())
            .iter()
            .filter(|token| token.start != range.start || range.is_empty())
            .copied()
            .collect();
        Parameter { type_text: type_text(&self.bytes, &tokens), name: self.text(&range).to_owned() }
    }
}

/// Words of which a type consists that is no name; the last ones have their name behind them.
const BASE: [&str; 14] = [
    "void", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "_Bool",
    "__int128", "struct", "union", "enum",
];

/// The type of a function's value; empty if it is not known. Words that cannot be part of a type are
/// macros that stand for something else.
fn value_type(source: &[u8], head: &[Token]) -> String {
    let is = |token: &Token, words: &[&str]| words.iter().any(|word| token.is_word(source, word));
    let has_base = head.iter().any(|token| is(token, &BASE));
    let mut names = 0_usize;
    let mut kept: Vec<Token> = Vec::new();
    for token in head.iter().filter(|token| !is(token, &STORAGE)) {
        let is_tag = kept.last().is_some_and(|last| is(last, &BASE[11..]));
        let is_plain = token.is(b'*') || is_tag || is(token, &["const", "volatile"]);
        if !is_plain && !is(token, &BASE) {
            if has_base {
                continue;
            }
            names += 1;
        }
        kept.push(*token);
    }
    if has_base || names == 1 { type_text(source, &kept) } else { String::new() }
}

/// The words of a type, without those that say something else.
pub(crate) fn type_text(source: &[u8], tokens: &[Token]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        let word = String::from_utf8_lossy(token.text(source));
        if STORAGE.contains(&&*word) || token.kind == lexer::Kind::Directive {
            continue;
        }
        if word.starts_with("__attribute") {
            at = lexer::closing(tokens, at).map_or(at, |end| end + 1);
            continue;
        }
        let sticks = text.ends_with('*') && token.is(b'*');
        if !text.is_empty() && !sticks {
            text.push(' ');
        }
        text.push_str(&word);
    }
    text
}

fn to_return(node: Node<'_>) -> Return {
    let value = node.named_child(0).filter(|value| value.kind() != "comment");
    Return {
        range: node.byte_range(),
        has_value: value.is_some(),
        has_comma: value.is_some_and(|value| value.kind() == "comma_expression"),
    }
}

fn innermost_name(mut node: Node<'_>) -> Option<Node<'_>> {
    loop {
        match node.kind() {
            "identifier" => return Some(node),
            "parenthesized_declarator" => node = node.named_child(0)?,
            _ => node = node.child_by_field_name("declarator")?,
        }
    }
}

fn last_statement(body: Node<'_>) -> Option<Node<'_>> {
    let mut cursor = body.walk();
    body.named_children(&mut cursor).filter(|child| child.kind() != "comment").last()
}

/// All nodes of a kind below a node, in any order.
pub(crate) fn all(node: Node<'_>, wanted: impl Fn(&str) -> bool) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut cursor = node.walk();
    if !cursor.goto_first_child() {
        return found;
    }
    let mut depth = 1_usize;
    loop {
        if wanted(cursor.node().kind()) {
            found.push(cursor.node());
        }
        if cursor.goto_first_child() {
            depth += 1;
            continue;
        }
        while !cursor.goto_next_sibling() {
            depth -= 1;
            if depth == 0 || !cursor.goto_parent() {
                return found;
            }
        }
    }
}

fn first_error(node: Node<'_>) -> Option<Range<usize>> {
    let mut cursor = node.walk();
    let children: Vec<Node<'_>> = node.children(&mut cursor).collect();
    for child in children {
        if child.is_error() || child.is_missing() {
            return Some(child.byte_range());
        }
        if child.has_error() {
            return first_error(child).or_else(|| Some(child.byte_range()));
        }
    }
    None
}
