//! What is looked at before and after, by a second method: words, not the grammar.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::edits::Edited;
use crate::error::{Error, Kind, Place, Result};
use crate::lexer::{self, tokens};
use crate::source::{Function, Source};

/// Prefix of names that are ours.
const RESERVED: &str = "fist_";

/// Macros of a file system that contain returns, with the places of their definitions.
#[derive(Debug, Default)]
pub(crate) struct HiddenReturns(BTreeMap<String, Place>);

impl HiddenReturns {
    /// Finds them, those that use others of them, too.
    pub(crate) fn find(sources: &[Source]) -> Self {
        let mut bodies = Vec::new();
        for source in sources {
            for (token, words) in source.directives() {
                if let ["define", name, body @ ..] = &words[..] {
                    bodies.push((*name, body.to_vec(), source.place(&(token.start..token.end))));
                }
            }
        }
        let mut found: BTreeMap<String, Place> = BTreeMap::new();
        loop {
            let before = found.len();
            for (name, body, place) in &bodies {
                let hides =
                    |word: &&str| *word == "return" || found.contains_key(*word) && word != name;
                if !found.contains_key(*name) && body.iter().any(hides) {
                    found.insert((*name).to_owned(), place.clone());
                }
            }
            if found.len() == before {
                return Self(found);
            }
        }
    }
}

/// Refuses a function that cannot be edited safely.
pub(crate) fn before(
    source: &Source,
    function: &Function,
    hidden: &HiddenReturns,
    has_code_after: bool,
) -> Result<()> {
    let name = &function.name;
    if let Some(range) = &function.error {
        return Err(source
            .refuse(range, format!("{name} cannot be instrumented: this is not understood"))
            .with_remedy(
                "write it without macros that are no expressions, or exclude the operation",
            ));
    }
    if let Some(range) = &function.nested {
        return Err(source
            .refuse(range, format!("{name} cannot be instrumented: a function is defined in it"))
            .with_remedy("move the inner function out"));
    }
    if let Some(unnamed) =
        function.parameters.iter().position(|parameter| parameter.name.is_empty())
    {
        let cause = format!("argument {} of {name} has no name", unnamed + 1);
        return Err(source.refuse(&function.name_range, cause).with_remedy("give it a name"));
    }
    if source.has_second_body(function) || source.is_split(&function.body) {
        let cause = format!("{name} cannot be instrumented: it has several bodies or ends");
        return Err(source
            .refuse(&function.name_range, cause)
            .with_remedy("write a whole function into each arm of the condition"));
    }
    if !has_code_after {
        return Ok(());
    }
    if function.return_type.is_empty() {
        let cause =
            format!("{name} cannot be instrumented: the type of its value is not understood");
        return Err(source.refuse(&function.name_range, cause).with_remedy(
            "write macros between storage and type as the words that they stand for",
        ));
    }
    if let Some(split) = function.returns.iter().find(|found| source.is_split(&found.range)) {
        let cause = format!("{name} cannot be instrumented: directives split this return");
        return Err(source
            .refuse(&split.range, cause)
            .with_remedy("write a whole return into each arm of the condition"));
    }
    for token in source.tokens_in(&function.body) {
        let range = token.start..token.end;
        let Some(place) = hidden.0.get(source.text(&range)) else { continue };
        let at = format!("{}:{}", place.file.display(), place.line);
        let cause = format!("{name} cannot be instrumented: this macro hides a return ({at})");
        return Err(source
            .refuse(&range, cause)
            .with_remedy("write the return in the function itself"));
    }
    let (by_words, by_tree) = (source.returns_by_words(function), function.returns.len());
    if by_words != by_tree {
        let cause = format!(
            "{name} cannot be instrumented: {by_tree} returns are understood of {by_words}"
        );
        return Err(source
            .refuse(&function.name_range, cause)
            .with_remedy("write it without directives that split statements"));
    }
    Ok(())
}

/// Names that begin like ours are not in the source.
pub(crate) fn no_clash(source: &Source) -> Result<()> {
    let is_ours = |token: &&lexer::Token| {
        token.kind == lexer::Kind::Word
            && token.text(&source.bytes).starts_with(RESERVED.as_bytes())
    };
    match source.tokens.iter().find(is_ours) {
        None => Ok(()),
        Some(token) => Err(source
            .refuse(
                &(token.start..token.end),
                format!("names that begin with {RESERVED} are taken"),
            )
            .with_remedy("is this instrumented already? take the original, or rename this")),
    }
}

/// Looks at an edited source: brackets match where they did, and every return of a function with code
/// behind it is one of the edits'.
pub(crate) fn after(
    source: &Source,
    edited: &Edited,
    functions: &[(&Function, bool)],
) -> Result<()> {
    let all = tokens(&edited.bytes);
    for (function, has_code_after) in functions {
        let body = edited.place_of(function.body.start)..edited.place_of(function.body.end - 1);
        let open = all.partition_point(|token| token.start < body.start);
        let closes = lexer::closing(&all, open).map(|at| all[at].start);
        let is_balanced = all.get(open).is_some_and(|t| t.start == body.start && t.is(b'{'));
        let was = closing_before(source, &function.body);
        if !is_balanced || was && closes != Some(body.end) {
            return Err(failed(source, function, "brackets do not match any more"));
        }
        if !has_code_after {
            continue;
        }
        let within = all.iter().filter(|token| body.contains(&token.start));
        let mut left =
            within.filter(|t| t.is_word(&edited.bytes, "return") && !edited.is_new(t.start));
        if left.next().is_some() {
            return Err(failed(source, function, "a return was left as it was"));
        }
        let last = all[..all.partition_point(|token| token.start < body.end)].last();
        if function.return_type == "void" && !last.is_some_and(|token| edited.is_new(token.start)) {
            return Err(failed(source, function, "its end was left as it was"));
        }
    }
    Ok(())
}

/// Whether brackets matched before; they need not if both arms of a condition open one.
fn closing_before(source: &Source, body: &Range<usize>) -> bool {
    let open = source.tokens.partition_point(|token| token.start < body.start);
    lexer::closing(&source.tokens, open).is_some_and(|at| source.tokens[at].end == body.end)
}

fn failed(source: &Source, function: &Function, how: &str) -> Error {
    Error::new(Kind::Check, format!("{}: {how}; nothing was written", function.name))
        .at(source.place(&function.name_range))
        .with_remedy("this is a mistake of the instrumenter; please report it with the source")
}
