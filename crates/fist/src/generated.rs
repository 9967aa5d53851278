//! Files that are added to those of the file system: a header, names, and the extension's own code.

use std::fmt::Write;

use crate::extension::{Extension, MountOption, OptionType};
use crate::naming::Names;
use crate::source::Source;

/// The header that instrumented files include.
pub(crate) const HEADER: &str = "fist.h";
/// The header that the compiler includes before everything.
pub(crate) const NAMES: &str = "fist_names.h";
/// The extension's own code.
pub(crate) const EXTENSION: &str = "fist_extension.c";

const HEADER_BEGIN: &str = include_str!("../library/header.h");
const MOUNT: &str = include_str!("../library/mount.c");
const PURGE_HEADER: &str = include_str!("../library/purge.h");
const PURGE: &str = include_str!("../library/purge.c");

/// Functions of ours that other files call, if the extension has mount options.
const MOUNT_FUNCTIONS: [&str; 4] =
    ["fist_mnt", "fist_mount", "fist_init_fs_context", "fist_kill_sb"];
/// And if it purges.
const PURGE_FUNCTIONS: [&str; 6] = [
    "fistPurgeRange",
    "fistPurgeBlock",
    "fistPurgeFile",
    "fistPurgeName",
    "fistPurgeLater",
    "fistPurgeSync",
];

/// Whether an extension uses the library that overwrites.
pub(crate) fn purges(extension: &Extension) -> bool {
    let text = String::from_utf8_lossy(extension.source());
    PURGE_FUNCTIONS.iter().any(|name| text.contains(name))
}

/// `fist.h`.
pub(crate) fn header(extension: &Extension) -> String {
    let mut text = String::from(HEADER_BEGIN);
    if !extension.options.is_empty() {
        text += "/* Mount options of the extension. */\nstruct fist_mnt {\n";
        for option in &extension.options {
            let _ = writeln!(text, "\t{}", member(option));
        }
        text += "};\n\nconst struct fist_mnt *fist_mnt(const struct super_block *sb);\n\
                 #define fistMnt(sb) fist_mnt(sb)\n\
                 struct dentry *fist_mount(struct file_system_type *type, int flags, const char *device,\n\
                 \t\t\t  void *data, struct dentry *(*mount)(struct file_system_type *, int,\n\
                 \t\t\t\t\t\t      const char *, void *));\n\
                 int fist_init_fs_context(struct fs_context *fc, int (*init)(struct fs_context *));\n\
                 void fist_kill_sb(struct super_block *sb, void (*kill)(struct super_block *));\n\n";
    }
    if purges(extension) {
        text += PURGE_HEADER;
    }
    let own = extension.text(&extension.header);
    if !own.trim().is_empty() {
        let _ = writeln!(text, "/* From the extension. */{own}");
    }
    text + "\n#endif\n"
}

fn member(option: &MountOption) -> String {
    match &option.value {
        OptionType::Bool => format!("bool {};", option.name),
        OptionType::Int => format!("int {};", option.name),
        OptionType::Text => format!("char {}[32];", option.name),
        OptionType::Words(_) => format!("const char *{};", option.name),
    }
}

/// `fist_names.h`.
pub(crate) fn names(names: &Names, folder: &str, extension: &Extension) -> String {
    let mut text = String::from(
        "/* Made by `tacita fist instrument`: names that the kernel knows already, named anew. */\n\n",
    );
    let in_name = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let _ = writeln!(text, "#define FIST_FS_{} 1", folder.chars().map(in_name).collect::<String>());
    let ours = shared(extension);
    for (old, new) in names.symbols(&ours) {
        let _ = writeln!(text, "#define {old} {new}");
    }
    text
}

/// Functions of ours and of the extension that other files may call.
fn shared(extension: &Extension) -> Vec<String> {
    let mut found = extension.shared_functions();
    found.extend(library(extension));
    found
}

/// Functions of ours that other files may call.
fn library(extension: &Extension) -> Vec<String> {
    let mut found = Vec::new();
    if !extension.options.is_empty() {
        found.extend(MOUNT_FUNCTIONS.map(str::to_owned));
    }
    if purges(extension) {
        found.extend(PURGE_FUNCTIONS.map(str::to_owned));
    }
    found
}

/// Whether there has to be a `fist_extension.c`.
pub(crate) fn has_code(extension: &Extension, sources: &[Source]) -> bool {
    extension.has_extra()
        || !extension.options.is_empty()
        || purges(extension)
        || !is_licensed(sources)
}

fn is_licensed(sources: &[Source]) -> bool {
    sources
        .iter()
        .any(|source| source.tokens.iter().any(|t| t.is_word(&source.bytes, "MODULE_LICENSE")))
}

/// `fist_extension.c`; `many` if several modules share it.
pub(crate) fn code(extension: &Extension, names: &Names, sources: &[Source], many: bool) -> String {
    let mut text = String::from(
        "/* Made by `tacita fist instrument`: what stands behind the code in the operations. */\n\n\
         #include <linux/module.h>\n#include <linux/fs_context.h>\n#include <linux/fs_parser.h>\n\
         #include <linux/slab.h>\n#include \"fist.h\"\n\n",
    );
    if !extension.options.is_empty() {
        let _ = writeln!(text, "#define FIST_NAME \"{}\"", names.prefixed("fist"));
        text += "static const struct fist_mnt fist_defaults = {\n";
        for option in &extension.options {
            let _ = writeln!(text, "\t.{} = {},", option.name, option.default);
        }
        text += "};\n\n/* Takes one option: 1 if it is one of ours, 0 if not, or an error. */\n\
                 static int fist_take(struct fist_mnt *mnt, const char *key, const char *value)\n{\n";
        for option in &extension.options {
            text += &taking(option);
        }
        text += "\treturn 0;\n}\n\n";
        text += MOUNT;
        text.push('\n');
    }
    if purges(extension) {
        text += PURGE;
        text.push('\n');
    }
    if many {
        text += &extension.exporting_extra();
    } else {
        text += extension.text(&extension.extra);
    }
    text.push('\n');
    if many {
        for function in library(extension) {
            let _ = writeln!(text, "EXPORT_SYMBOL_GPL({function});");
        }
    }
    if !is_licensed(sources) {
        text += "MODULE_LICENSE(\"GPL\");\n";
    }
    text
}

fn taking(option: &MountOption) -> String {
    let name = &option.name;
    let take = match &option.value {
        OptionType::Bool => {
            format!("\t\tif (value)\n\t\t\treturn -EINVAL;\n\t\tmnt->{name} = true;\n")
        }
        OptionType::Int => {
            format!("\t\tif (!value || kstrtoint(value, 0, &mnt->{name}))\n\t\t\treturn -EINVAL;\n")
        }
        OptionType::Text => format!(
            "\t\tif (!value || strscpy(mnt->{name}, value, sizeof(mnt->{name})) < 0)\n\t\t\treturn -EINVAL;\n"
        ),
        OptionType::Words(words) => {
            let mut text = "\t\tif (!value)\n\t\t\treturn -EINVAL;\n".to_owned();
            for word in words {
                let _ = write!(
                    text,
                    "\t\tif (!strcmp(value, \"{word}\")) {{\n\t\t\tmnt->{name} = \"{word}\";\n\t\t\treturn 1;\n\t\t}}\n"
                );
            }
            text += "\t\treturn -EINVAL;\n";
            return format!("\tif (!strcmp(key, \"{name}\")) {{\n{text}\t}}\n");
        }
    };
    format!("\tif (!strcmp(key, \"{name}\")) {{\n{take}\t\treturn 1;\n\t}}\n")
}
