//! From the code of an extension to C for one operation of one file system.
//!
//! Paper: section 3.1, steps 1 and 5, and the conversion of vnode objects to dentries and inodes.

use std::collections::BTreeSet;

use crate::edits::Edits;
use crate::error::Result;
use crate::extension::jumps::labels;
use crate::extension::{Attribute, Code, Extension, Part, When, parts};
use crate::kernel::tag;
use crate::source::Parameter;

/// Operations whose inode is that of the directory, and whose object is named by the dentry.
const IN_DIRECTORY: [&str; 11] = [
    "create",
    "lookup",
    "link",
    "unlink",
    "symlink",
    "mkdir",
    "rmdir",
    "mknod",
    "rename",
    "tmpfile",
    "atomic_open",
];

/// Operations after which the object is no more.
const ENDING: [&str; 2] = ["free_inode", "destroy_inode"];

/// Types that are whole numbers with a sign.
const SIGNED: [&str; 18] = [
    "signed",
    "short int",
    "long int",
    "long long int",
    "int32_t",
    "int64_t",
    "long",
    "short",
    "ssize_t",
    "loff_t",
    "off_t",
    "s8",
    "s16",
    "s32",
    "s64",
    "long long",
    "signed int",
    "signed long",
];

/// What kind of value a function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    None,
    Pointer,
    Int,
    /// Wider or narrower than an int.
    Signed,
    /// Nothing that could be an error.
    Other,
}

impl Value {
    pub(crate) fn of(return_type: &str) -> Self {
        match return_type {
            "void" => Self::None,
            "int" => Self::Int,
            _ if return_type.ends_with('*') => Self::Pointer,
            _ if SIGNED.contains(&return_type) => Self::Signed,
            _ => Self::Other,
        }
    }
}

/// A function into which code goes.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    /// What `%op` is: the entry of the vector, or the function's own name.
    pub(crate) operation: &'a str,
    pub(crate) parameters: &'a [Parameter],
    pub(crate) value: Value,
    /// How the operation itself is run, for `fistCall()`.
    pub(crate) call: &'a str,
    /// What it is called in errors.
    pub(crate) function: &'a str,
}

/// C that came of a code, and the arguments that it uses, counted from 1.
#[derive(Debug, Default)]
pub(crate) struct Expanded {
    pub(crate) text: String,
    pub(crate) arguments: BTreeSet<usize>,
}

/// Why a primitive cannot be used, and what can be done.
type Objection = (String, &'static str);

/// What a primitive stands for.
type Answer<T> = std::result::Result<T, Objection>;

/// Puts C in the place of primitives.
///
/// # Errors
/// If one of them makes no sense in this function; the place is that in the extension.
pub(crate) fn expand(
    extension: &Extension,
    code: &Code,
    when: When,
    frame: &Frame<'_>,
) -> Result<Expanded> {
    let mut this = Expansion { frame, when, arguments: BTreeSet::new() };
    let mut edits = Edits::default();
    for (range, part) in parts(extension, code)? {
        let (open, close) = this.part(&part).map_err(|(cause, remedy)| {
            extension.refuse(&range, format!("{cause} in {}", frame.function)).with_remedy(remedy)
        })?;
        if let Part::SetErr(bracket) | Part::ReturnErr(bracket) = part {
            let at = bracket - code.range.start;
            edits.replace(at..at + 1, close);
        }
        edits.replace(range.start - code.range.start..range.end - code.range.start, open);
    }
    let labels = labels(extension, code);
    if !labels.is_empty() {
        // The code stands at every return, and the function may have labels of the same names.
        edits.insert(1, format!(" __label__ {};", labels.join(", ")));
    }
    let bytes = edits.apply(extension.text(&code.range).as_bytes()).bytes;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Expanded { text, arguments: this.arguments })
}

struct Expansion<'a> {
    frame: &'a Frame<'a>,
    when: When,
    arguments: BTreeSet<usize>,
}

impl Expansion<'_> {
    /// The text of a primitive, and that of its closing bracket if it has one of its own.
    fn part(&mut self, part: &Part) -> Answer<(String, String)> {
        let text = match part {
            Part::Operation => format!("\"{}\"", self.frame.operation),
            Part::Global("pid") => "task_pid_nr(current)".to_owned(),
            Part::Global("uid") => "from_kuid(&init_user_ns, current_uid())".to_owned(),
            Part::Global(_) => "ktime_get_real_seconds()".to_owned(),
            Part::Printf => "printk".to_owned(),
            Part::Argument(number) => self.argument(*number)?,
            Part::Object(attribute) => self.object(*attribute)?,
            Part::LastErr => self.last_error(),
            Part::Call => self.frame.call.to_owned(),
            Part::SetErr(_) => return self.set_error(),
            Part::ReturnErr(_) => return self.return_error(),
        };
        Ok((text, String::new()))
    }

    fn argument(&mut self, number: usize) -> Answer<String> {
        if number > self.frame.parameters.len() {
            let count = self.frame.parameters.len();
            return Err((
                format!("%{number} is not there: there are {count} arguments"),
                "use it in rules for operations that have it",
            ));
        }
        Ok(self.used(number - 1))
    }

    /// The name of an argument in all code of extensions, whatever it is called in the source.
    fn used(&mut self, index: usize) -> String {
        self.arguments.insert(index + 1);
        format!("fist_arg{}", index + 1)
    }

    /// The first argument that points to a structure of this kind.
    fn pointer(&mut self, structure: &str) -> Option<String> {
        let points = |parameter: &Parameter| {
            tag(&parameter.type_text) == Some(structure)
                && parameter.type_text.matches('*').count() == 1
        };
        let index = self.frame.parameters.iter().position(points)?;
        Some(self.used(index))
    }

    fn inode(&mut self) -> String {
        if IN_DIRECTORY.contains(&self.frame.operation)
            && let Some(dentry) = self.dentry()
        {
            return format!("fist_dentry_inode({dentry})");
        }
        if let Some(inode) = self.pointer("inode") {
            return inode;
        }
        for (structure, function) in [
            ("folio", "fist_folio_inode"),
            ("page", "fist_page_inode"),
            ("address_space", "fist_mapping_inode"),
            ("readahead_control", "fist_readahead_inode"),
        ] {
            if let Some(argument) = self.pointer(structure) {
                return format!("{function}({argument})");
            }
        }
        if let Some(file) = self.file() {
            return format!("fist_file_inode({file})");
        }
        self.dentry()
            .map_or("fist_no_inode()".to_owned(), |dentry| format!("fist_dentry_inode({dentry})"))
    }

    fn file(&mut self) -> Option<String> {
        let iocb = self.pointer("kiocb").map(|iocb| format!("{iocb}->ki_filp"));
        iocb.or_else(|| self.pointer("file"))
    }

    fn dentry(&mut self) -> Option<String> {
        if let Some(dentry) = self.pointer("dentry") {
            return Some(dentry);
        }
        if let Some(path) = self.pointer("path") {
            return Some(format!("{path}->dentry"));
        }
        self.file().map(|file| format!("fist_file_dentry({file})"))
    }

    fn object(&mut self, attribute: Attribute) -> Answer<String> {
        if self.when == When::Postcall && ENDING.contains(&self.frame.operation) {
            return Err((
                "$0 is no more after the call".to_owned(),
                "use it in precall, or leave this operation out",
            ));
        }
        let dentry = |this: &mut Self| this.dentry().unwrap_or_else(|| "NULL".to_owned());
        Ok(match attribute {
            Attribute::Inode => self.inode(),
            Attribute::Dentry => dentry(self),
            Attribute::File => self.file().unwrap_or_else(|| "NULL".to_owned()),
            Attribute::Super => self.super_block(),
            Attribute::Mount => format!("fist_mnt({})", self.super_block()),
            Attribute::Name => format!("fist_name({})", dentry(self)),
            Attribute::Parent => self.parent(),
            Attribute::Number(number) => format!("fist_{number}({})", self.inode()),
            Attribute::Attributes => self.pointer("iattr").ok_or_else(|| {
                (
                    "$0.attr is not there: no argument is a struct iattr *".to_owned(),
                    "use it in rules for setattr",
                )
            })?,
        })
    }

    fn parent(&mut self) -> String {
        if IN_DIRECTORY.contains(&self.frame.operation)
            && let Some(inode) = self.pointer("inode")
        {
            return inode;
        }
        self.dentry()
            .map_or("fist_no_inode()".to_owned(), |dentry| format!("fist_parent({dentry})"))
    }

    fn super_block(&mut self) -> String {
        if let Some(found) = self.pointer("super_block") {
            return found;
        }
        if let Some(dentry) = self.pointer("dentry") {
            return format!("fist_dentry_sb({dentry})");
        }
        format!("fist_inode_sb({})", self.inode())
    }

    fn last_error(&self) -> String {
        match self.frame.value {
            Value::None | Value::Other => "0",
            Value::Pointer => "fist_pointer_error(fist_ret)",
            Value::Int => "fist_ret",
            Value::Signed => "fist_error(fist_ret)",
        }
        .to_owned()
    }

    fn set_error(&self) -> Answer<(String, String)> {
        match self.frame.value {
            Value::Int | Value::Signed => Ok(("(fist_ret = (".to_owned(), "))".to_owned())),
            Value::Pointer => Ok(("(fist_ret = ERR_PTR(".to_owned(), "))".to_owned())),
            Value::None | Value::Other => Err(no_error()),
        }
    }

    fn return_error(&self) -> Answer<(String, String)> {
        match self.frame.value {
            Value::Int | Value::Signed => Ok(("return (".to_owned(), ")".to_owned())),
            Value::Pointer => Ok(("return ERR_PTR(".to_owned(), ")".to_owned())),
            Value::None | Value::Other => Err(no_error()),
        }
    }
}

fn no_error() -> Objection {
    (
        "no error can be returned".to_owned(),
        "name operations that return errors; those of type void, bool and the like return none",
    )
}
