//! From the text of an extension to its parts.

use std::ops::Range;
use std::path::Path;

use super::{Addition, Code, Extension, GROUPS, MountOption, OptionType, Rule, Target, When};
use super::{jumps, primitives};
use crate::error::Result;
use crate::initialiser::VECTORS;
use crate::lexer::{self, Token, closing, tokens};

/// What a whole extension is made of, for remedies.
const SHAPE: &str = "an extension is `%{`, C for the header, `%}`, declarations, `%%`, rules, and if \
                     needed `%%` and more C, with these marks on lines of their own";

pub(super) fn parse(file: &Path, source: Vec<u8>) -> Result<Extension> {
    let mut this = Extension {
        file: file.to_owned(),
        source,
        header: 0..0,
        options: Vec::new(),
        rules: Vec::new(),
        additions: Vec::new(),
        extra: 0..0,
    };
    if let Err(error) = std::str::from_utf8(&this.source) {
        let at = error.valid_up_to();
        return Err(this.refuse(&(at..at + 1), "this is not text").with_remedy(SHAPE));
    }
    let sections = Sections::find(&this)?;
    let declarations = declarations(&mut this, &sections)?;
    this.options = declarations;
    this.extra = sections.extra.clone();
    rules(&mut this, sections.rules)?;
    Ok(this)
}

struct Sections {
    declarations: Range<usize>,
    rules: Range<usize>,
    extra: Range<usize>,
}

impl Sections {
    /// The parts between lines of `%%`.
    fn find(extension: &Extension) -> Result<Self> {
        let len = extension.source.len();
        let mut marks =
            lines(&extension.source).filter(|line| extension.text(line).trim_end() == "%%");
        let Some(first) = marks.next() else {
            return Err(extension
                .refuse(&(len..len), "this ends without a line of `%%`, behind which rules are")
                .with_remedy(SHAPE));
        };
        let second = marks.next();
        if let Some(third) = marks.next() {
            return Err(extension
                .refuse(&third, "this is the third line of `%%`, and there are three parts at most")
                .with_remedy(SHAPE));
        }
        let end = second.clone().map_or(len, |line| line.start);
        let extra = second.map_or(len..len, |line| line.end..len);
        Ok(Self { declarations: 0..first.start, rules: first.end..end, extra })
    }
}

/// Ranges of lines without their ends.
fn lines(source: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    source.split_inclusive(|&b| b == b'\n').map(move |line| {
        let range = start..start + line.len() - usize::from(line.ends_with(b"\n"));
        start += line.len();
        range
    })
}

/// The header between `%{` and `%}`, and options.
fn declarations(extension: &mut Extension, sections: &Sections) -> Result<Vec<MountOption>> {
    let within = sections.declarations.clone();
    let all: Vec<Range<usize>> =
        lines(&extension.source).filter(|line| line.start < within.end).collect();
    let mark =
        |wanted: &str| all.iter().find(|line| extension.text(line).trim_end() == wanted).cloned();
    let mut from = within.start;
    let (open, close) = (mark("%{"), mark("%}"));
    match (open, close) {
        (Some(open), Some(close)) if open.end <= close.start => {
            no_more(extension, within.start..open.start)?;
            from = close.end;
            extension.header = open.end..close.start;
        }
        (None, None) => {}
        (Some(open), None) => {
            return Err(extension
                .refuse(&open, "the header that begins here does not end")
                .with_remedy("end it with `%}` on a line of its own, before `%%`"));
        }
        (_, Some(close)) => {
            return Err(extension
                .refuse(&close, "a header ends here that has not begun")
                .with_remedy("begin it with `%{` on a line of its own"));
        }
    }
    let mut reader = Reader::new(extension, from..within.end);
    let mut options: Vec<MountOption> = Vec::new();
    while let Some(start) = reader.keyword()? {
        let (word, range) = reader.word("a declaration")?;
        if word != "mntopt" {
            let range = start..range.end;
            return Err(reader
                .extension
                .refuse(&range, format!("there is no declaration %{word}"))
                .with_remedy("%mntopt NAME=TYPE is the one there is; rules stand behind `%%`"));
        }
        let option = reader.mount_option(start)?;
        if let Some(earlier) = options.iter().find(|earlier| earlier.name == option.name) {
            let cause = format!("the mount option {} is declared twice", earlier.name);
            return Err(reader
                .extension
                .refuse(&option.range, cause)
                .with_remedy("give it another name"));
        }
        options.push(option);
    }
    Ok(options)
}

/// Refuses anything but comments.
fn no_more(extension: &Extension, range: Range<usize>) -> Result<()> {
    let Some(first) = tokens(&extension.source[range.clone()]).first().copied() else {
        return Ok(());
    };
    let range = range.start + first.start..range.start + first.end;
    Err(extension.refuse(&range, "this stands before the header").with_remedy(SHAPE))
}

fn rules(extension: &mut Extension, within: Range<usize>) -> Result<()> {
    let (mut rules, mut additions) = (Vec::new(), Vec::new());
    let mut reader = Reader::new(extension, within);
    while let Some(start) = reader.keyword()? {
        let (word, range) = reader.word("a rule")?;
        match &*word {
            "op" => rules.push(reader.operation_rule(start)?),
            "func" => rules.push(reader.function_rule(start)?),
            "add" => additions.push(reader.addition(start)?),
            _ => {
                let cause = format!("there is no rule %{word}");
                return Err(reader
                    .extension
                    .refuse(&(start..range.end), cause)
                    .with_remedy("rules begin with %op:, %func: or %add:"));
            }
        }
    }
    (extension.rules, extension.additions) = (rules, additions);
    Ok(())
}

/// Reads tokens of a part of the extension, with places in the whole.
struct Reader<'a> {
    extension: &'a Extension,
    tokens: Vec<Token>,
    at: usize,
    end: usize,
}

/// Words that no member of a structure can be called by.
const KEYWORDS: [&str; 37] = [
    "asm", "auto", "bool", "break", "case", "char", "const", "continue", "default", "do", "double",
    "else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register",
    "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
    "typeof", "union", "unsigned", "void", "volatile", "while",
];

/// Longest string that a mount option holds, and the largest number.
const TEXT_LEN_MAX: usize = 31;
const INT_MAX: u64 = 0x7FFF_FFFF;

impl<'a> Reader<'a> {
    fn new(extension: &'a Extension, within: Range<usize>) -> Self {
        let mut tokens = tokens(&extension.source[within.clone()]);
        for token in &mut tokens {
            token.start += within.start;
            token.end += within.start;
        }
        Self { extension, tokens, at: 0, end: within.end }
    }

    fn range(&self) -> Range<usize> {
        self.tokens.get(self.at).map_or(self.end..self.end, |token| token.start..token.end)
    }

    fn text(&self) -> &'a str {
        self.extension.text(&self.range())
    }

    fn is(&self, byte: u8) -> bool {
        self.tokens.get(self.at).is_some_and(|token| token.is(byte))
    }

    fn expect(&mut self, byte: u8, after: &str) -> Result<Range<usize>> {
        let range = self.range();
        if !self.is(byte) {
            let wanted = char::from(byte);
            return Err(self
                .extension
                .refuse(&range, format!("`{wanted}` is expected {after}"))
                .with_remedy("rules look like %op:unlink:precall { code }"));
        }
        self.at += 1;
        Ok(range)
    }

    /// The percent sign of the next declaration or rule, or the end.
    fn keyword(&mut self) -> Result<Option<usize>> {
        // Semicolons behind rules were usual in FiST.
        while self.is(b';') {
            self.at += 1;
        }
        if self.at == self.tokens.len() {
            return Ok(None);
        }
        let range = self.range();
        if !self.is(b'%') {
            return Err(self
                .extension
                .refuse(&range, "a declaration or rule begins with `%`")
                .with_remedy(SHAPE));
        }
        self.at += 1;
        Ok(Some(range.start))
    }

    fn word(&mut self, what: &str) -> Result<(String, Range<usize>)> {
        let range = self.range();
        if self.tokens.get(self.at).is_none_or(|token| token.kind != lexer::Kind::Word) {
            return Err(self
                .extension
                .refuse(&range, format!("the name of {what} is expected"))
                .with_remedy(
                    "rules look like %op:unlink:precall { code }, and mount options like %mntopt mode=a|b",
                ));
        }
        let word = self.text().to_owned();
        self.at += 1;
        Ok((word, range))
    }

    fn mount_option(&mut self, start: usize) -> Result<MountOption> {
        let (name, at) = self.word("a mount option")?;
        if KEYWORDS.contains(&&*name) {
            return Err(self
                .extension
                .refuse(&at, format!("{name} is a word of C, and no mount option can have it"))
                .with_remedy("give it another name"));
        }
        self.expect(b'=', "behind the name of the mount option")?;
        let (type_name, range) = self.word("the option's type")?;
        let value = match &*type_name {
            "bool" => OptionType::Bool,
            "int" => OptionType::Int,
            "string" => OptionType::Text,
            _ if self.is(b'|') => OptionType::Words(self.words(type_name.clone())?),
            _ => {
                return Err(self
                    .extension
                    .refuse(&range, format!("a mount option cannot be of type {type_name}"))
                    .with_remedy(
                        "the types are bool, int, string, and words to choose from: a|b|c",
                    ));
            }
        };
        let mut default = match &value {
            OptionType::Text => "\"\"".to_owned(),
            OptionType::Words(_) => format!("\"{type_name}\""),
            _ => "0".to_owned(),
        };
        let mut end = range.end;
        if self.is(b':') {
            self.at += 1;
            let at = self.range();
            let kind = self.tokens.get(self.at).map(|token| token.kind);
            let fits = match &value {
                OptionType::Text => {
                    kind == Some(lexer::Kind::Text)
                        && self.text().starts_with('"')
                        && self.text().len() <= TEXT_LEN_MAX + "\"\"".len()
                }
                OptionType::Words(_) => false,
                OptionType::Int | OptionType::Bool => {
                    let is_too_large = |text: &str| text.parse::<u64>().is_ok_and(|n| n > INT_MAX);
                    kind == Some(lexer::Kind::Number) && !is_too_large(self.text())
                }
            };
            if !fits {
                return Err(self
                    .extension
                    .refuse(&at, format!("this is no default for an option of type {type_name}"))
                    .with_remedy("write a number up to 2147483647, for a string a text in quotes of 31 bytes at most, and of words the default first"));
            }
            self.text().clone_into(&mut default);
            end = at.end;
            self.at += 1;
        }
        Ok(MountOption { name, value, default, range: start..end })
    }

    /// The words behind the first of an option, which are to choose from.
    fn words(&mut self, first: String) -> Result<Vec<String>> {
        let mut words = vec![first];
        while self.is(b'|') {
            self.at += 1;
            let (word, range) = self.word("a choice")?;
            if words.contains(&word) {
                let refused = self.extension.refuse(&range, format!("{word} is there twice"));
                return Err(refused.with_remedy("name each choice once"));
            }
            words.push(word);
        }
        Ok(words)
    }

    fn operation_rule(&mut self, start: usize) -> Result<Rule> {
        self.expect(b':', "behind %op")?;
        let (name, _) = self.word("an operation")?;
        let group = GROUPS.iter().find(|(group, _)| *group == name);
        let target = match (&*name, group) {
            ("all", _) => Target::All,
            (_, Some((group, _))) => Target::Group(group),
            _ => Target::Operation(name),
        };
        self.expect(b':', "behind the operation")?;
        let when = self.when(true)?;
        self.rule(start, target, when)
    }

    fn function_rule(&mut self, start: usize) -> Result<Rule> {
        self.expect(b':', "behind %func")?;
        let (name, _) = self.word("a function")?;
        let may_lack = self.is(b'?');
        self.at += usize::from(may_lack);
        self.expect(b':', "behind the function")?;
        let when = self.when(false)?;
        self.rule(start, Target::Function(name, may_lack), when)
    }

    fn rule(&mut self, start: usize, target: Target, when: When) -> Result<Rule> {
        let range = start..self.tokens[self.at - 1].end;
        let code = self.code(when == When::Postcall, when != When::Precall)?;
        Ok(Rule { target, when, code, range })
    }

    fn when(&mut self, of_operation: bool) -> Result<When> {
        let (word, range) = self.word("the part: precall, postcall or call")?;
        match &*word {
            "precall" => Ok(When::Precall),
            "postcall" => Ok(When::Postcall),
            "call" if of_operation => Ok(When::Call),
            "call" => Err(self
                .extension
                .refuse(&range, "functions cannot be replaced, only operations can")
                .with_remedy("use precall with fistReturnErr(), or postcall")),
            _ => Err(self
                .extension
                .refuse(&range, format!("there is no part {word} of a call"))
                .with_remedy("the parts are precall, postcall and call")),
        }
    }

    fn addition(&mut self, start: usize) -> Result<Addition> {
        self.expect(b':', "behind %add")?;
        let (type_name, range) = self.word("the type of a vector")?;
        if !VECTORS.contains(&&*type_name) {
            return Err(self
                .extension
                .refuse(&range, format!("there are no vectors of type {type_name}"))
                .with_remedy(format!("the types are {}", VECTORS.join(", "))));
        }
        self.expect(b':', "behind the type of the vector")?;
        let (entry, range) = self.word("an entry")?;
        let range = start..range.end;
        let code = self.code(true, true)?;
        Ok(Addition { type_name, entry, code, range })
    }

    /// Code in braces; every primitive in it is looked at now.
    fn code(&mut self, has_result: bool, may_set: bool) -> Result<Code> {
        let open = self.expect(b'{', "before the code")?;
        let first = self.at - 1;
        let Some(last) = closing(&self.tokens, first).filter(|&last| self.tokens[last].is(b'}'))
        else {
            return Err(self
                .extension
                .refuse(&open, "the code that begins here does not end: brackets do not match")
                .with_remedy("close every bracket, and the code with `}`"));
        };
        let tokens = self.tokens[first..=last].to_vec();
        let code = Code { range: open.start..self.tokens[last].end, tokens };
        primitives::examine(self.extension, &code, has_result, may_set)?;
        jumps::stay(self.extension, &code)?;
        self.at = last + 1;
        Ok(code)
    }
}
