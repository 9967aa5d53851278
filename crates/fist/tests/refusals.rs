//! What cannot be done safely is refused, with its place and a remedy.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tacita_fist::{Extension, Folder, Instrumented, Kernel, Kind, Result, instrument};

const TRACE: &str = "%%\n%op:all:postcall { fistPrintf(\"%s\", %op); }\n";
const PLAIN: &str = "static int a_open(struct inode *inode, struct file *file)\n{\n\treturn 0;\n}\n\
                     static const struct file_operations a_fops = {\n\t.open = a_open,\n};\n";

fn kernel() -> Kernel {
    Kernel::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel")).unwrap()
}

fn made(source: &[u8], extension: &str, name: Option<&str>) -> Result<Instrumented> {
    let files: BTreeMap<PathBuf, Vec<u8>> = [(PathBuf::from("a.c"), source.to_vec())].into();
    let folder = Folder::of(Path::new("a"), files)?;
    let extension = Extension::parse(Path::new("e.fist"), extension.as_bytes().to_vec())?;
    instrument(&folder, &extension, &kernel(), name)
}

fn refused(source: &str, extension: &str) -> (Kind, String) {
    let error = made(source.as_bytes(), extension, None).unwrap_err();
    assert!(error.remedy().is_some(), "{error} has a remedy");
    (error.kind(), error.to_string())
}

#[test]
fn sources_that_cannot_be_instrumented_safely_are_refused_by_name() {
    let head = "static const struct file_operations a_fops = {\n\t.open = a_open,\n};\n";
    let open = |body: &str| {
        format!("static int a_open(struct inode *inode, struct file *file)\n{{\n{body}\n}}\n{head}")
    };
    let hidden = format!(
        "#define CHECK(x) if (x) return -1\n#define TWICE(x) CHECK(x)\n{}",
        open("\tTWICE(inode);\n\treturn 0;")
    );
    let run_time = format!("{PLAIN}static void b(void)\n{{\n\ta_fops.open = 0;\n}}\n");
    let other = open("\treturn 0;").replace("struct inode *inode", "struct mnt_idmap *inode");
    for (source, place, cause) in [
        (hidden.as_str(), "a.c:5:2", "this macro hides a return (a.c:2)"),
        (&run_time, "a.c:10:2", "the vector a_fops is built at run time"),
        (
            "struct holder {\n\tstruct file_operations fops;\n};\nint f(void) { return 0; }\nstruct super_operations s = { .sync_fs = f };",
            "a.c:2:2",
            "built at run time",
        ),
        (
            &open("\tint b(void) { return 1; }\n\treturn b();"),
            "a.c:3:2",
            "a function is defined in it",
        ),
        (&open("\treturn inode @ file;"), "a.c:3:", "this is not understood"),
        (
            &open(
                "#ifdef X\n\tif (inode) {\n#else\n\tif (file) {\n\t\treturn 2;\n#endif\n\t\treturn 1;\n\t}\n\treturn 0;",
            ),
            "a.c:",
            "cannot be instrumented",
        ),
        (&format!("{PLAIN}int fist_mine;\n"), "a.c:8:5", "names that begin with fist_ are taken"),
        (
            "int f(void) { static const struct file_operations o = { .open = 0 }; return 0; }",
            "a.c:1:15",
            "is a variable of a function",
        ),
        (
            "int f(void) { return 0; }\nstatic const struct file_operations o = { f };",
            "a.c:2:43",
            "does not say which one it is",
        ),
        (
            "int f(void) { return 0; }\nstatic const struct file_operations o = { .open = (void *)f };",
            "a.c:2:51",
            "not a name but an expression",
        ),
        (
            "#define g f\nint f(void) { return 0; }\nstatic const struct file_operations o = { .open = g };",
            "a.c:3:51",
            "the handler g is a macro",
        ),
    ] {
        let (kind, said) = refused(source, TRACE);
        assert_eq!(kind, Kind::Source, "{said}");
        assert!(
            said.contains(place) && said.contains(cause),
            "wanted {place} {cause}, got\n{said}"
        );
    }
    let (kind, said) = refused(&other, TRACE);
    assert_eq!(kind, Kind::Headers);
    assert!(said.contains("a.c:1:12") && said.contains("takes a struct mnt_idmap"), "{said}");
    let newer = PLAIN.replace(".open", ".uncached_open");
    let (kind, said) = refused(&newer, TRACE);
    assert_eq!(kind, Kind::Headers, "{said}");
    assert!(said.contains("struct file_operations has no entry uncached_open"), "{said}");
}

#[test]
fn functions_and_vectors_that_are_not_what_they_seem_are_refused() {
    let vector = "static const struct file_operations a_fops = {\n\t.open = a_open,\n};\n";
    let head = "static int a_open(struct inode *inode, struct file *file)\n";
    let several = format!(
        "{head}#ifdef X\n{{\n\treturn 1;\n}}\n#else\n{{\n\treturn 2;\n}}\n#endif\n{vector}"
    );
    let ends = format!(
        "{head}{{\n\tint a;\n#ifdef X\n\treturn 1;\n}}\n#else\n\treturn 2;\n}}\n#endif\n{vector}"
    );
    let split = format!(
        "{head}{{\n\treturn\n#ifdef X\n\t\tf(inode);\n#else\n\t\tg(inode);\n#endif\n}}\n{vector}"
    );
    let unknown = PLAIN.replace("static int", "static notrace loff_t");
    let hidden = format!(
        "{PLAIN}void set(struct inode *inode)\n{{\n\tinode->i_fop = &(const struct file_operations){{ .open = a_open }};\n}}\n"
    );
    let renamed = format!(
        "{PLAIN}typedef const struct file_operations fops_t;\nfops_t b = {{ .open = a_open }};\n"
    );
    for (source, place, cause) in [
        (&several, "a.c:1:12", "it has several bodies or ends"),
        (&ends, "a.c:1:12", "it has several bodies or ends"),
        (&split, "a.c:3:2", "directives split this return"),
        (&unknown, "a.c:1:23", "the type of its value is not understood"),
        (&hidden, "a.c:10:25", "this vector has no declaration of its own"),
        (&renamed, "a.c:8:15", "this vector has no declaration of its own"),
    ] {
        let (kind, said) = refused(source, TRACE);
        assert_eq!(kind, Kind::Source, "{said}");
        assert!(
            said.contains(place) && said.contains(cause),
            "wanted {place} {cause}, got\n{said}"
        );
    }
}

#[test]
fn jumps_stay_in_the_code_of_an_extension_and_labels_are_its_own() {
    let rule = |code: &str| format!("%%\n%op:open:postcall {{ {code} }}\n");
    for (code, place, word) in [
        ("if (fistLastErr()) break;", "e.fist:2:40", "break"),
        ("switch (%pid) { case 1: continue; }", "e.fist:2:45", "continue"),
        ("do { break; } while (0); break;", "e.fist:2:46", "break"),
        ("goto out;", "e.fist:2:21", "goto"),
    ] {
        let (kind, said) = refused(PLAIN, &rule(code));
        assert_eq!(kind, Kind::Extension, "{said}");
        let cause = format!("this `{word}` leaves the code of the extension");
        assert!(
            said.contains(place) && said.contains(&cause),
            "wanted {place} {cause}, got\n{said}"
        );
    }
    for code in [
        "for (;;) { if ($0.size) continue; break; } switch (%pid) { case 1: break; }",
        "list_for_each_entry(a, b, c) if (a) break;",
    ] {
        assert!(made(PLAIN.as_bytes(), &rule(code), None).is_ok(), "{code}");
    }
    let two = PLAIN.replace("\treturn 0;", "\tif (inode)\n\t\treturn 1;\n\treturn 0;");
    let with = made(two.as_bytes(), &rule("if (%pid) goto done; f(); done: g();"), None).unwrap();
    let text = String::from_utf8(with.files[Path::new("a.c")].clone()).unwrap();
    assert_eq!(text.matches("{ __label__ done; if (").count(), 2, "{text}");
}

#[test]
fn what_is_no_file_system_is_refused() {
    for (source, cause) in [
        (&b"hello"[..], "is it C?"),
        (b"int f(void) { return 0; }", "no operation vectors"),
        (b"int f(void)\n{ \xff }", "no text"),
        (b"int f(void) { }\0", "no text"),
        (b"", "is it C?"),
    ] {
        let error = made(source, TRACE, None).unwrap_err();
        assert!(error.to_string().contains(cause), "{error}");
        assert_eq!(error.kind(), Kind::Source);
    }
}

/// In a Makefile that is made for it a name may be no other than it is.
#[test]
fn names_that_make_cannot_take_are_refused() {
    let make = |folder: &str, file: &str, name: Option<&str>| {
        let files = [(PathBuf::from(file), PLAIN.as_bytes().to_vec())].into();
        let folder = Folder::of(Path::new(folder), files).unwrap();
        let extension = Extension::parse(Path::new("e.fist"), TRACE.as_bytes().to_vec()).unwrap();
        instrument(&folder, &extension, &kernel(), name)
    };
    for (folder, file, other) in [
        ("a", "b c.c", "' '"),
        ("a", "b\nall: c.c", "'\\n'"),
        ("a", "$(x).c", "'$'"),
        ("a", "#.c", "'#'"),
        ("a b", "a.c", "' '"),
        ("a:b", "a.c", "':'"),
    ] {
        let error = make(folder, file, None).unwrap_err();
        assert!(error.to_string().contains(other) && error.remedy().is_some(), "{error}");
        assert_eq!(error.kind(), Kind::Source);
    }
    make("a", "b-1,c.d_e.c", None).unwrap();
}

#[test]
fn extensions_that_do_not_fit_are_refused_at_their_place() {
    for (extension, cause) in [
        (
            "%%\n%op:unlnk:precall { }\n",
            "e.fist:2:1: there is no operation unlnk; is unlink meant?",
        ),
        ("%%\n%func:a_free:precall { }\n", "e.fist:2:1: the file system has no function a_free"),
        ("%%\n%add:file_operations:opne { }\n", "has no entry opne; is open meant?"),
        (
            "%%\n%op:open:precall { f(%3); }\n",
            "e.fist:2:22: %3 is not there: there are 2 arguments in a_open",
        ),
        ("%%\n%op:open:precall { f($0.attr); }\n", "no argument is a struct iattr * in a_open"),
        ("%%\n%op:open:call { }\n%op:all:call { }\n", "open is replaced twice"),
    ] {
        let (kind, said) = refused(PLAIN, extension);
        assert_eq!(kind, Kind::Extension, "{said}");
        assert!(said.contains(cause), "wanted {cause}, got\n{said}");
    }
    let void =
        "void e(struct inode *inode)\n{\n}\nstruct super_operations s = { .evict_inode = e };";
    let (_, said) = refused(void, "%%\n%op:evict_inode:precall { fistReturnErr(-1); }\n");
    assert!(said.contains("no error can be returned in e"), "{said}");
    assert!(made(PLAIN.as_bytes(), "%%\n%func:a_free?:precall { }\n", None).is_ok());
}

#[test]
fn a_name_that_is_taken_or_none_is_refused() {
    let source = format!("{PLAIN}static struct file_system_type t = {{ .name = \"a\" }};\n");
    for name in ["a", "no/name", "", "1st"] {
        let error = made(source.as_bytes(), TRACE, Some(name)).unwrap_err();
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("--name")), "{error}");
    }
    let made = made(source.as_bytes(), TRACE, Some("b")).unwrap();
    assert_eq!(made.file_systems, ["b"]);
    let text = String::from_utf8(made.files[Path::new("a.c")].clone()).unwrap();
    assert!(text.contains(".name = \"b\""), "{text}");
}

/// In other encodings nothing would come out as it went in.
#[test]
fn a_makefile_that_is_no_text_is_refused() {
    let files = [("a.c", PLAIN.as_bytes()), ("Makefile", b"# M\xfcller\nobj-m += a.o\n")];
    let files = files.map(|(name, bytes)| (PathBuf::from(name), bytes.to_vec()));
    let error = Folder::of(Path::new("a"), files.into()).unwrap_err();
    assert!(error.cause().contains("no text"), "{error}");
    assert_eq!(error.place().unwrap().file, Path::new("Makefile"));
}

/// The mark of UTF-8 stays where compilers take it, and hides no directive behind it.
#[test]
fn a_mark_at_the_beginning_stays_there() {
    for (head, wanted) in [
        ("", "#include \"fist.h\"\n"),
        ("#include <linux/fs.h>\n", "#include <linux/fs.h>\n#include \"fist.h\"\n"),
    ] {
        let source = format!("\u{feff}{head}{PLAIN}");
        let made = made(source.as_bytes(), TRACE, None).unwrap();
        let text = String::from_utf8(made.files[Path::new("a.c")].clone()).unwrap();
        assert!(text.strip_prefix('\u{feff}').unwrap().starts_with(wanted), "{text}");
    }
}

/// What the compiler reads before everything is C, whatever the folder is called.
#[test]
fn any_folder_has_a_name_in_c() {
    for folder in ["my-fs", "a\nb", "ext2 (copy)", "\u{e9}"] {
        let files = [
            (PathBuf::from("a.c"), PLAIN.as_bytes().to_vec()),
            (PathBuf::from("Makefile"), b"obj-m += a.o\n".to_vec()),
        ];
        let folder = Folder::of(Path::new(folder), files.into()).unwrap();
        let extension = Extension::parse(Path::new("e.fist"), TRACE.as_bytes().to_vec()).unwrap();
        let made = instrument(&folder, &extension, &kernel(), None).unwrap();
        let names = String::from_utf8(made.files[Path::new("fist_names.h")].clone()).unwrap();
        let name = names.lines().find_map(|line| line.strip_prefix("#define FIST_FS_")).unwrap();
        let name = name.strip_suffix(" 1").unwrap();
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{names}");
    }
}

#[test]
fn what_is_instrumented_is_not_instrumented_again() {
    let once = made(PLAIN.as_bytes(), TRACE, None).unwrap();
    let folder = Folder::of(Path::new("a"), once.files).unwrap();
    let extension = Extension::parse(Path::new("e.fist"), TRACE.as_bytes().to_vec()).unwrap();
    let error = instrument(&folder, &extension, &kernel(), None).unwrap_err();
    assert!(
        error.remedy().is_some_and(|remedy| remedy.contains("instrumented already")),
        "{error}"
    );
}

#[cfg(feature = "faults")]
#[test]
fn a_check_that_believes_everything_lets_a_return_slip() {
    use tacita_fist::faults::{Fault, plant};
    // The grammar takes the second return for a part of a list that it does not understand.
    let source = PLAIN.replace(
        "\treturn 0;",
        "#ifdef X\n\tif (inode) {\n#else\n\tif (file) {\n\t\treturn 2;\n#endif\n\t\treturn 1;\n\t}\n\treturn 0;",
    );
    assert!(made(source.as_bytes(), TRACE, None).is_err());
    let missed = {
        let _planted = plant(Fault::ReturnMissed);
        made(PLAIN.as_bytes(), TRACE, None).unwrap_err()
    };
    assert!(missed.cause().contains("0 returns are understood of 1"), "{missed}");
}
