//! Putting code into functions and around them, by edits.
//!
//! Paper: section 3.1, steps 3 to 5, figure 4. Deviations: docs/design/fist.md.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::edits::Edits;
use crate::error::Result;
use crate::expansion::{Expanded, Frame, Value, expand};
use crate::extension::{Code, Extension, When};
use crate::faults::{Fault, planted};
use crate::initialiser::Initialiser;
use crate::plan::{Hooks, Wrapper};
use crate::source::{Function, Return, Source};

/// Code for a function, as C.
struct Expansions {
    before: Vec<String>,
    after: Vec<String>,
    /// Arguments that code uses after the call, and before it.
    late: BTreeSet<usize>,
    early: BTreeSet<usize>,
}

impl Expansions {
    fn of(extension: &Extension, hooks: &Hooks<'_>, frame: &Frame<'_>) -> Result<Self> {
        let mut this = Self {
            before: Vec::new(),
            after: Vec::new(),
            late: BTreeSet::new(),
            early: BTreeSet::new(),
        };
        for code in &hooks.before {
            let Expanded { text, arguments } = expand(extension, code, When::Precall, frame)?;
            this.before.push(text);
            this.early.extend(arguments);
        }
        for code in &hooks.after {
            let Expanded { text, arguments } = expand(extension, code, When::Postcall, frame)?;
            this.after.push(text);
            this.late.extend(arguments);
        }
        Ok(this)
    }
}

/// Puts code into a function: at its begin, before its returns, and where it ends without one.
pub(crate) fn in_place(
    edits: &mut Edits,
    extension: &Extension,
    source: &Source,
    function: &Function,
    hooks: &Hooks<'_>,
) -> Result<()> {
    let frame = Frame {
        operation: &hooks.operation,
        parameters: &function.parameters,
        value: Value::of(&function.return_type),
        call: "",
        function: &function.name,
    };
    let code = Expansions::of(extension, hooks, &frame)?;
    edits.insert(function.body.start + 1, opening(function, &code));
    if code.after.is_empty() {
        return Ok(());
    }
    let after = code.after.join("\n");
    for found in &function.returns {
        around_return(edits, source, function, found, &after);
    }
    if frame.value == Value::None && !function.ends_with_return && !planted(Fault::EndMissed) {
        edits.insert(function.body.end - 1, format!("\t{}\n", indented(&after, "\t")));
    }
    Ok(())
}

/// Declarations with which a function begins: its arguments as they came, and the code before the call.
///
/// The code is an expression of a declaration, so that it runs before the function's own declarations
/// and is none behind a statement.
fn opening(function: &Function, code: &Expansions) -> String {
    let mut text = String::new();
    for number in code.late.union(&code.early) {
        if let Some(parameter) = function.parameters.get(number - 1) {
            let name = &parameter.name;
            let _ = write!(text, "\n\ttypeof({name}) fist_arg{number} = {name};");
        }
    }
    if !code.before.is_empty() {
        let before = indented(&code.before.join("\n"), "\t");
        let _ = write!(text, "\n\tint fist_pre __maybe_unused = ({{\n\t{before}\n\t0; }});");
    }
    text
}

/// `return value;` becomes a block in which the value is known to the code, and returned once.
fn around_return(
    edits: &mut Edits,
    source: &Source,
    function: &Function,
    found: &Return,
    after: &str,
) {
    let tabs = indentation(source, found.range.start);
    let after = indented(after, &format!("{tabs}\t"));
    let keyword = found.range.start..found.range.start + "return".len();
    let semicolon = found.range.end - 1..found.range.end;
    let is_void = Value::of(&function.return_type) == Value::None;
    if !found.has_value {
        edits.replace(keyword, format!("{{\n{tabs}\t{after}\n{tabs}\treturn"));
        edits.replace(semicolon, format!(";\n{tabs}}}"));
        return;
    }
    if is_void {
        edits.replace(keyword, format!("{{\n{tabs}\t"));
        edits.replace(semicolon, format!(";\n{tabs}\t{after}\n{tabs}\treturn;\n{tabs}}}"));
        return;
    }
    // A comma would begin another variable.
    let (open, close) = if found.has_comma { ("(", ")") } else { ("", "") };
    let variable = variable(&function.return_type);
    edits.replace(keyword, format!("{{\n{tabs}\t{variable} ={open}"));
    edits.replace(
        semicolon,
        format!("{close};\n{tabs}\t{after}\n{tabs}\treturn fist_ret;\n{tabs}}}"),
    );
}

/// The variable that holds the value.
fn variable(return_type: &str) -> String {
    if return_type.ends_with('*') {
        return format!("{return_type}fist_ret");
    }
    format!("{} fist_ret", return_type.trim_start_matches("const "))
}

/// Code with its further lines moved to the right; directives stay at the margin.
fn indented(code: &str, tabs: &str) -> String {
    let mut text = String::new();
    let mut continues = false;
    for (number, line) in code.split('\n').enumerate() {
        if number > 0 {
            text.push('\n');
            if !continues && !line.is_empty() && !line.starts_with('#') {
                text.push_str(tabs);
            }
        }
        text.push_str(line);
        continues = line.ends_with('\\');
    }
    text
}

fn indentation(source: &Source, at: usize) -> String {
    let begin = source.bytes[..at].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    let blanks = source.bytes[begin..].iter().take_while(|b| matches!(b, b' ' | b'\t'));
    blanks.map(|&b| char::from(b)).collect()
}

/// Writes a function around a handler before the vector, and puts it into the vector.
pub(crate) fn around(
    edits: &mut Edits,
    extension: &Extension,
    source: &Source,
    vector: &Initialiser,
    wrapper: &Wrapper<'_>,
) -> Result<()> {
    let name = name(vector, &wrapper.operation.name);
    let entry = wrapper.entry.map(|at| &vector.entries[at]);
    let at = entry.map_or(vector.list.start, |entry| entry.range.start);
    let conditions = source.conditions(vector.range.start, at);
    let mut text = String::new();
    for line in conditions.iter().flatten() {
        let _ = writeln!(text, "{line}");
    }
    text += &definition(extension, wrapper, &name)?;
    for _ in &conditions {
        text += "#endif\n";
    }
    edits.insert(vector.range.start, text);
    match entry {
        Some(entry) => edits.replace(entry.value.clone(), name),
        None => {
            edits.insert(
                vector.list.start + 1,
                format!("\n\t.{} = {name},", wrapper.operation.name),
            );
        }
    }
    Ok(())
}

fn name(vector: &Initialiser, operation: &str) -> String {
    let vector: String =
        vector.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("fist_{}_{operation}", vector.trim_end_matches('_'))
}

fn definition(extension: &Extension, wrapper: &Wrapper<'_>, name: &str) -> Result<String> {
    let operation = &wrapper.operation;
    let value = Value::of(&operation.return_type);
    let arguments: Vec<String> =
        (1..=operation.parameters.len()).map(|number| format!("fist_arg{number}")).collect();
    let run = wrapper.handler.as_ref().map_or(String::new(), |handler| {
        let run = format!("{handler}({})", arguments.join(", "));
        if value == Value::None { run } else { format!("fist_ret = {run}") }
    });
    let call = format!("({run})");
    let frame = Frame {
        operation: &operation.name,
        parameters: &operation.parameters,
        value,
        call: &call,
        function: name,
    };
    let code = Expansions::of(extension, &wrapper.hooks, &frame)?;
    let instead = wrapper.hooks.instead.or(wrapper.addition);
    let instead = instead.map(|code| replacement(extension, code, &frame)).transpose()?;

    let parameters: Vec<String> = operation
        .parameters
        .iter()
        .zip(&arguments)
        .map(|(parameter, name)| declared(&parameter.type_text, name))
        .collect();
    let parameters = if parameters.is_empty() { "void".to_owned() } else { parameters.join(", ") };
    let mut text = format!("static {}({parameters})\n{{\n", declared(&operation.return_type, name));
    if value != Value::None {
        let zero = if instead.is_some() { " = 0" } else { "" };
        let _ = write!(text, "\t{}{zero};\n\n", variable(&operation.return_type));
    }
    for code in &code.before {
        let _ = writeln!(text, "\t{}", indented(code, "\t"));
    }
    match instead {
        Some(code) => {
            let _ = writeln!(text, "\t{}", indented(&code, "\t"));
            if let Some(handler) = &wrapper.handler {
                // It may be called by nobody now, which is no mistake.
                let _ = writeln!(text, "\t(void)&{handler};");
            }
        }
        None => {
            let _ = writeln!(text, "\t{run};");
        }
    }
    for code in &code.after {
        let _ = writeln!(text, "\t{}", indented(code, "\t"));
    }
    if value != Value::None {
        text += "\treturn fist_ret;\n";
    }
    text += "}\n\n";
    Ok(text)
}

fn replacement(extension: &Extension, code: &Code, frame: &Frame<'_>) -> Result<String> {
    Ok(expand(extension, code, When::Call, frame)?.text)
}

fn declared(type_text: &str, name: &str) -> String {
    let gap = if type_text.ends_with('*') { "" } else { " " };
    format!("{type_text}{gap}{name}")
}
