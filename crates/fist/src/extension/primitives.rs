//! What in the code of an extension is not C: `%op`, `$0.name`, `fistLastErr()` and their like.

use std::ops::Range;

use super::{Code, Extension};
use crate::error::Result;
use crate::lexer::{Kind, Token, closing};

/// A piece of code that stands for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// `%op`: the name of the operation.
    Operation,
    /// `%pid`, `%uid`, `%time`.
    Global(&'static str),
    /// `%1`, `%2`...: an argument of the operation, counted from 1.
    Argument(usize),
    /// `$0` or `$0.attribute`.
    Object(Attribute),
    /// `fistLastErr()`.
    LastErr,
    /// `fistSetErr(`, and where its bracket closes.
    SetErr(usize),
    /// `fistReturnErr(`, and where its bracket closes.
    ReturnErr(usize),
    /// `fistCall()`.
    Call,
    /// `fistPrintf`.
    Printf,
}

/// What is asked of the object of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribute {
    /// Its inode.
    Inode,
    /// Its directory entry.
    Dentry,
    /// Its open file.
    File,
    /// The file system.
    Super,
    /// The attributes that are to be set.
    Attributes,
    /// The mount options of the extension.
    Mount,
    /// The name.
    Name,
    /// The inode of the directory.
    Parent,
    /// A number in the inode.
    Number(&'static str),
}

const GLOBALS: [&str; 3] = ["pid", "uid", "time"];

const ATTRIBUTES: [(&str, Attribute); 13] = [
    ("inode", Attribute::Inode),
    ("dentry", Attribute::Dentry),
    ("file", Attribute::File),
    ("sb", Attribute::Super),
    ("attr", Attribute::Attributes),
    ("mnt", Attribute::Mount),
    ("name", Attribute::Name),
    ("parent", Attribute::Parent),
    ("size", Attribute::Number("size")),
    ("nlink", Attribute::Number("nlink")),
    ("ino", Attribute::Number("ino")),
    ("mode", Attribute::Number("mode")),
    ("flags", Attribute::Number("flags")),
];

/// Finds the primitives of a code: each with its bytes.
///
/// # Errors
/// If one is not known, with its place.
pub(crate) fn parts(extension: &Extension, code: &Code) -> Result<Vec<(Range<usize>, Part)>> {
    let source = extension.source();
    let tokens = &code.tokens;
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1).filter(|next| next.start == token.end);
        match token.kind {
            Kind::Punctuation(b'%') => {
                if let Some(next) = next
                    && let Some(part) = percent(extension, token, next)?
                {
                    found.push((token.start..next.end, part));
                }
            }
            Kind::Punctuation(b'$') => found.push(dollar(extension, token, next)?),
            Kind::Word => {
                if let Some(part) = call(extension, tokens, at)? {
                    found.push(part);
                } else if token.is_word(source, "return") {
                    return Err(extension
                        .refuse(
                            &(token.start..token.end),
                            "code of an extension cannot use `return`",
                        )
                        .with_remedy(
                            "fistReturnErr(error) returns an error of the operation's own type",
                        ));
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Looks at all primitives of a code, and whether they can be used there.
pub(super) fn examine(
    extension: &Extension,
    code: &Code,
    has_result: bool,
    may_set: bool,
) -> Result<()> {
    for (range, part) in parts(extension, code)? {
        match part {
            Part::LastErr if !has_result && !may_set => {
                return Err(extension
                    .refuse(&range, "there is no result before the call")
                    .with_remedy("use fistLastErr() in postcall or call"));
            }
            Part::SetErr(_) if !may_set => {
                return Err(extension
                    .refuse(&range, "there is no result before the call")
                    .with_remedy("fistReturnErr(error) refuses the operation"));
            }
            Part::Call if has_result || !may_set => {
                return Err(extension
                    .refuse(&range, "fistCall() runs the operation itself, which runs here anyway or is not there")
                    .with_remedy("use it in %op:NAME:call"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn percent(extension: &Extension, token: &Token, next: &Token) -> Result<Option<Part>> {
    let range = next.start..next.end;
    let word = extension.text(&range);
    if next.kind == Kind::Number {
        let number = word.parse().ok().filter(|number| (1..=9).contains(number));
        return match number {
            Some(number) => Ok(Some(Part::Argument(number))),
            None => Err(extension
                .refuse(&(token.start..next.end), format!("%{word} is no argument of an operation"))
                .with_remedy("arguments are %1 to %9; for a remainder leave a blank: `a % 10`")),
        };
    }
    if next.kind != Kind::Word {
        return Ok(None);
    }
    if word == "op" {
        return Ok(Some(Part::Operation));
    }
    let global = GLOBALS.into_iter().find(|global| *global == word);
    global.map(|global| Some(Part::Global(global))).ok_or_else(|| {
        extension
            .refuse(&(token.start..next.end), format!("there is no primitive %{word}"))
            .with_remedy("there are %op, %pid, %uid, %time and %1 to %9; for a remainder leave a blank: `a % b`")
    })
}

fn dollar(
    extension: &Extension,
    token: &Token,
    next: Option<&Token>,
) -> Result<(Range<usize>, Part)> {
    let end = next.map_or(token.end, |next| next.end);
    let all = token.start..end;
    let text = next.map_or("", |next| extension.text(&(next.start..next.end)));
    // The lexer takes `0.name` for a number; an attribute of an attribute is C, and stays.
    let (number, rest) = text.split_once('.').unwrap_or((text, ""));
    if number != "0" || next.is_none_or(|next| next.kind != Kind::Number) {
        return Err(extension
            .refuse(&all, format!("${number} is no object of an operation"))
            .with_remedy("$0 is the object; there are no lower file systems, so there is no $1"));
    }
    if rest.is_empty() {
        return Ok((token.start..token.start + 2, Part::Object(Attribute::Inode)));
    }
    let name = rest.split('.').next().unwrap_or_default();
    let found = ATTRIBUTES.iter().find(|(known, _)| *known == name);
    let Some((_, attribute)) = found else {
        let names: Vec<&str> = ATTRIBUTES.iter().map(|(known, _)| *known).collect();
        return Err(extension
            .refuse(&all, format!("$0 has no attribute {name}"))
            .with_remedy(format!("it has {}", names.join(", "))));
    };
    Ok((token.start..token.start + "$0.".len() + name.len(), Part::Object(*attribute)))
}

fn call(
    extension: &Extension,
    tokens: &[Token],
    at: usize,
) -> Result<Option<(Range<usize>, Part)>> {
    let token = tokens[at];
    let range = token.start..token.end;
    let name = extension.text(&range);
    if !name.starts_with("fist") || name.starts_with("fist_") {
        return Ok(None);
    }
    let end = tokens.get(at + 1).filter(|next| next.is(b'(')).and_then(|_| closing(tokens, at + 1));
    let unknown = || {
        extension
            .refuse(&range, format!("there is no primitive {name}"))
            .with_remedy(
                "there are fistLastErr(), fistSetErr(), fistReturnErr(), fistCall(), fistPrintf(), fistMnt(), \
                 fistPurgeRange() and fistPurgeName(); names that begin with fist are reserved",
            )
    };
    let Some(end) = end else {
        return Err(match name {
            "fistLastErr" | "fistSetErr" | "fistReturnErr" | "fistCall" | "fistPrintf" => {
                extension.refuse(&range, format!("{name} needs its arguments in round brackets"))
            }
            _ => unknown(),
        });
    };
    let whole = token.start..tokens[end].end;
    let open = token.start..tokens[at + 1].end;
    Ok(Some(match name {
        "fistLastErr" => (whole, Part::LastErr),
        "fistCall" => (whole, Part::Call),
        "fistPrintf" => (range, Part::Printf),
        "fistSetErr" => (open, Part::SetErr(tokens[end].start)),
        "fistReturnErr" => (open, Part::ReturnErr(tokens[end].start)),
        "fistMnt" | "fistPurgeRange" | "fistPurgeBlock" | "fistPurgeName" | "fistPurgeLater"
        | "fistPurgeSync" => return Ok(None),
        _ => return Err(unknown()),
    }))
}
