//! The Makefile: from one within the kernel's tree to one that builds modules outside of it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use crate::error::{Error, Kind, Result};
use crate::naming::Names;

/// How the new folder is built, for people who open the file.
const HEAD: &str = "# Made by `tacita fist instrument` for building outside of the kernel's tree:\n\
                    #   make -C /lib/modules/$(uname -r)/build M=$PWD modules\n";

/// Whether the kernel's build takes a file of this name for a Makefile.
pub(crate) fn is_one(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "Makefile" || name == "Kbuild")
}

/// The Makefile of a folder without one: one module of all its files.
///
/// # Errors
/// [`Kind::Source`] if `make` would take a name for something else.
pub(crate) fn plain(module: &str, files: &[String], extension_file: bool) -> Result<String> {
    for name in files.iter().map(String::as_str).chain([module]) {
        if let Some(other) =
            name.chars().find(|c| !c.is_ascii_alphanumeric() && !"_-.,".contains(*c))
        {
            let text = format!("{name:?}: {other:?} cannot be in what a Makefile names");
            let remedy = "rename the file or folder: letters, digits, _, -, dots and commas can be";
            return Err(Error::new(Kind::Source, text).with_remedy(remedy));
        }
    }
    let mut objects: Vec<String> = files.iter().map(|file| file.replace(".c", ".o")).collect();
    if extension_file {
        objects.push(EXTENSION.to_owned());
    }
    let objects = objects.join(" ");
    Ok(format!("{HEAD}\nobj-m := {module}.o\n{module}-y := {objects}\n{}", flags()))
}

/// The object of the extension's own code.
const EXTENSION: &str = "fist_extension.o";

fn flags() -> String {
    "subdir-ccflags-y += -include $(src)/fist_names.h\nccflags-y += -I$(src)\n".to_owned()
}

/// A Makefile with its modules named anew; `is_root` for that of the whole file system.
pub(crate) fn outside(text: &str, names: &Names, is_root: bool, extension_file: bool) -> String {
    // Outside of the tree the folder's own path is whole already.
    let text = text.replace("$(srctree)/$(src)", "$(src)");
    let lines = logical(&text);
    let modules: BTreeSet<String> = lines.iter().flat_map(|line| objects(line)).collect();
    let base = lines.iter().find_map(|line| objects(line).into_iter().next());
    let symbol = lines.iter().find_map(|line| condition(line));
    let mut out = String::from(HEAD);
    if is_root {
        out += &flags();
        if let Some(symbol) = &symbol {
            out += &options(&lines, symbol);
        }
    }
    out.push('\n');
    for line in &lines {
        out += &renamed(line, &modules, base.as_deref(), names, is_root);
        out.push('\n');
    }
    for module in &modules {
        // A module of one file of its name needs to be told so now.
        if !lines.iter().any(|line| assigned(line).is_some_and(|name| is_part(name, module))) {
            let _ = writeln!(out, "{}-y += {module}.o", names.of(module));
        }
    }
    if let Some(base) = base.filter(|_| is_root && extension_file) {
        let _ = writeln!(out, "{}-y += {EXTENSION}", names.of(&base));
    }
    out
}

/// Lines with their continuations.
fn logical(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        match lines.last_mut() {
            Some(last) if open => {
                last.push('\n');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
        open = line.ends_with('\\');
    }
    lines
}

/// The variable that a line sets.
fn assigned(line: &str) -> Option<&str> {
    let name = line.split(['=', ':', '+', '?']).next()?.trim();
    (line.contains('=') && !line.starts_with(['#', '\t'])).then_some(name)
}

/// Modules that a line of `obj-` names.
fn objects(line: &str) -> Vec<String> {
    if !assigned(line).is_some_and(|name| name.starts_with("obj-")) {
        return Vec::new();
    }
    let values = line.split_once('=').map_or("", |(_, values)| values);
    values
        .split_whitespace()
        .filter_map(|word| word.strip_suffix(".o"))
        .map(str::to_owned)
        .collect()
}

/// The option of the kernel's configuration that a line of `obj-` hangs on.
fn condition(line: &str) -> Option<String> {
    let name = assigned(line)?.strip_prefix("obj-$(")?;
    name.strip_suffix(')').map(str::to_owned)
}

/// Whether a variable lists parts of a module.
fn is_part(variable: &str, module: &str) -> bool {
    let rest = variable.strip_prefix(module);
    rest.is_some_and(|rest| rest == "-y" || rest == "-objs" || rest.starts_with("-$("))
}

/// Where the kernel is configured without this file system, its options are on.
fn options(lines: &[String], symbol: &str) -> String {
    let own = format!("$({symbol}_");
    let mut found = BTreeSet::new();
    for line in lines.iter().filter_map(|line| assigned(line)) {
        if let Some(at) = line.find(&own) {
            let name: String = line[at + 2..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            found.insert(name);
        }
    }
    let mut out = format!("ifeq ($({symbol}),)\n{symbol} := m\n");
    for name in found {
        let _ = writeln!(out, "{name} := y\nsubdir-ccflags-y += -D{name}=1");
    }
    out + "endif\n"
}

fn renamed(
    line: &str,
    modules: &BTreeSet<String>,
    base: Option<&str>,
    names: &Names,
    is_root: bool,
) -> String {
    let Some(variable) = assigned(line) else { return line.to_owned() };
    if let Some(module) = modules.iter().find(|module| is_part(variable, module)) {
        return format!("{}{}", names.of(module), &line[module.len()..]);
    }
    if !variable.starts_with("obj-") {
        return line.to_owned();
    }
    let found = objects(line);
    let is_base = is_root && found.iter().any(|module| Some(module.as_str()) == base);
    // What is built into the stock kernel is a module here.
    let to = match condition(line) {
        Some(symbol) if !is_base => format!("obj-$(subst y,m,$({symbol}))"),
        _ => "obj-m".to_owned(),
    };
    let mut rest = line[variable.len()..].to_owned();
    for module in found {
        rest = replace_word(&rest, &format!("{module}.o"), &format!("{}.o", names.of(&module)));
    }
    format!("{to}{rest}")
}

fn replace_word(text: &str, old: &str, new: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim();
        words.push(if bare == old { word.replace(old, new) } else { word.to_owned() });
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::find(&[], None, "purge").unwrap()
    }

    #[test]
    fn modules_are_named_anew_and_what_is_built_in_becomes_one() {
        let text = "obj-$(CONFIG_FAT_FS) += fat.o\nobj-$(CONFIG_VFAT_FS) += vfat.o\n\n\
                    fat-y := cache.o \\\n\t dir.o\nfat-$(CONFIG_FAT_FS_X) += x.o\nvfat-y := namei_vfat.o\n";
        let out = outside(text, &names(), true, true);
        for line in [
            "obj-m += purge_fat.o\n",
            "obj-$(subst y,m,$(CONFIG_VFAT_FS)) += purge_vfat.o\n",
            "purge_fat-y := cache.o \\\n\t dir.o\n",
            "purge_fat-$(CONFIG_FAT_FS_X) += x.o\n",
            "ifeq ($(CONFIG_FAT_FS),)\nCONFIG_FAT_FS := m\nCONFIG_FAT_FS_X := y\n",
            "purge_vfat-y := namei_vfat.o\n",
            "purge_fat-y += fist_extension.o\n",
        ] {
            assert!(out.contains(line), "{line:?} is not in\n{out}");
        }
    }

    #[test]
    fn headers_of_the_folder_are_found_outside_of_the_tree() {
        let text = "ccflags-y += -I $(srctree)/$(src)\nccflags-y += -I $(srctree)/$(src)/libxfs\n\
                    obj-$(CONFIG_XFS_FS) += xfs.o\nxfs-y += xfs_trace.o\n";
        let out = outside(text, &names(), true, false);
        let wanted = "ccflags-y += -I $(src)\nccflags-y += -I $(src)/libxfs\n";
        assert!(out.contains(wanted) && !out.contains("srctree"), "{out}");
    }

    #[test]
    fn a_module_of_one_file_and_a_module_that_is_always_built_are_known() {
        let out = outside(
            "obj-y += ramfs.o\nramfs-objs += inode.o $(x-y)\nobj-$(CONFIG_A) += one.o\n",
            &names(),
            true,
            false,
        );
        assert!(
            out.contains("obj-m += purge_ramfs.o\npurge_ramfs-objs += inode.o $(x-y)\n"),
            "{out}"
        );
        assert!(out.contains("purge_one-y += one.o\n"), "{out}");
    }
}
