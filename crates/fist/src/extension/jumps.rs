//! Jumps in the code of an extension: none leaves it, and its labels are its own.

use std::ops::Range;

use tree_sitter::{Node, Parser};

use super::primitives::parts;
use super::{Code, Extension};
use crate::blanking::blanked;
use crate::error::Result;
use crate::lexer::{Kind, tokens};
use crate::source::all;

/// What makes a function of the code, to be parsed.
const HEAD: &[u8] = b"void f(void)\n";

/// Refuses code with a jump that would leave it: what follows there, a return, would be left out.
pub(super) fn stay(extension: &Extension, code: &Code) -> Result<()> {
    let refuse = |range: &Range<usize>, word: &str| {
        Err(extension
            .refuse(range, format!("this `{word}` leaves the code of the extension"))
            .with_remedy(
                "what ends the code early is a condition, or a goto to a label at its end",
            ))
    };
    let labels = labels(extension, code);
    for pair in code.tokens.windows(2).filter(|pair| pair[0].is_word(extension.source(), "goto")) {
        let range = pair[1].start..pair[1].end;
        if !labels.contains(&extension.text(&range)) {
            return refuse(&(pair[0].start..pair[1].end), "goto");
        }
    }
    match leaving(extension, code)? {
        Some((range, word)) => refuse(&range, word),
        None => Ok(()),
    }
}

/// The labels that gotos of a code name.
pub(crate) fn labels<'e>(extension: &'e Extension, code: &Code) -> Vec<&'e str> {
    let source = extension.source();
    let word = |at: usize| {
        let token = code.tokens.get(at).filter(|token| token.kind == Kind::Word)?;
        Some(extension.text(&(token.start..token.end)))
    };
    let mut found: Vec<&str> = Vec::new();
    for at in 1..code.tokens.len() {
        let Some(name) = word(at).filter(|name| !found.contains(name)) else { continue };
        let is_label = code.tokens.get(at + 1).is_some_and(|token| token.is(b':'));
        let mut targets = code.tokens.windows(2).filter(|pair| pair[0].is_word(source, "goto"));
        if is_label && targets.any(|pair| pair[1].is_word(source, name)) {
            found.push(name);
        }
    }
    found
}

/// The first `break` or `continue` that no loop or switch of the code is around, as far as it is
/// understood.
fn leaving(extension: &Extension, code: &Code) -> Result<Option<(Range<usize>, &'static str)>> {
    let mut source = HEAD.to_vec();
    source.extend_from_slice(extension.text(&code.range).as_bytes());
    let from_code = |at: usize| at - code.range.start + HEAD.len();
    for (range, _) in parts(extension, code)? {
        let range = from_code(range.start)..from_code(range.end);
        if matches!(source[range.start], b'%' | b'$') {
            source[range].fill(b'x');
        }
    }
    let shown = blanked(&source, &tokens(&source));
    let mut parser = Parser::new();
    let tree = parser.set_language(&tree_sitter_c::LANGUAGE.into()).ok();
    let Some(tree) = tree.and_then(|()| parser.parse(&shown, None)) else { return Ok(None) };
    if tree.root_node().has_error() {
        return Ok(None);
    }
    let jumps =
        all(tree.root_node(), |kind| matches!(kind, "break_statement" | "continue_statement"));
    let found = jumps.into_iter().find(|jump| !is_within(&source, *jump)).map(|jump| {
        let word = if jump.kind() == "break_statement" { "break" } else { "continue" };
        let start = jump.start_byte() - HEAD.len() + code.range.start;
        (start..start + word.len(), word)
    });
    Ok(found)
}

/// Whether what a jump leaves or continues is around it.
fn is_within(source: &[u8], jump: Node<'_>) -> bool {
    let is_break = jump.kind() == "break_statement";
    let mut around = jump.parent();
    while let Some(node) = around {
        let catches = match node.kind() {
            "for_statement" | "while_statement" | "do_statement" => true,
            "switch_statement" => is_break,
            // A macro of a short name, which may be a loop.
            "if_statement" => !source[node.byte_range()].starts_with(b"if"),
            _ => false,
        };
        if catches {
            return true;
        }
        around = node.parent();
    }
    false
}
