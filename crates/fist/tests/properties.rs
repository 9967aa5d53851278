//! What holds for any source and any bytes.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tacita_fist::{Extension, Folder, Kernel, instrument};

const TRACE: &str = "%%\n%op:all:postcall { fistPrintf(\"%s %d\", %op, fistLastErr()); }\n";

fn kernel() -> Kernel {
    Kernel::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel")).unwrap()
}

fn extension(text: &str) -> Extension {
    Extension::parse(Path::new("e.fist"), text.as_bytes().to_vec()).unwrap()
}

/// Statements with returns in every place where one can stand, and how many.
fn statement() -> impl Strategy<Value = (String, usize)> {
    let leaf = prop_oneof![
        Just(("return x;".to_owned(), 1)),
        Just(("return (x, 2), x;".to_owned(), 1)),
        Just(("return\n#ifdef A\n\tx +\n#endif\n\t1;".to_owned(), 1)),
        Just(("x++; /* return x; */".to_owned(), 0)),
        Just(("say(\"return x;\");".to_owned(), 0)),
        Just(("return f(struct_of(p, struct a, b));".to_owned(), 1)),
        Just(("again: return x ? 1 : 2;".to_owned(), 1)),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|(s, n)| (format!("if (x > 1)\n{{ {s} }}"), n)),
            (inner.clone(), inner.clone())
                .prop_map(|((s, n), (t, m))| (format!("if (x) {{ {s} }} else {{ {t} }}"), n + m)),
            Just(("if (x) return 1; else return 2;".to_owned(), 2)),
            inner.clone().prop_map(|(s, n)| (format!("list_for_each(x, &p, q) {{ {s} }}"), n)),
            inner.clone().prop_map(|(s, n)| (format!("do {{ {s} }} while (x);"), n)),
            inner
                .clone()
                .prop_map(|(s, n)| (format!("switch (x) {{ case 1: {s} default: ; }}"), n)),
            (inner.clone(), inner).prop_map(|((s, n), (t, m))| (format!("{s}\n{t}"), n + m)),
        ]
    })
}

fn source(body: &str, result: &str) -> Vec<u8> {
    format!(
        "static {result} a_open(struct inode *inode, struct file *file)\n{{\n\tint x = 1;\n{body}\n\treturn 0;\n}}\n\
         static const struct file_operations a_fops = {{\n\t.open = a_open,\n}};\n"
    )
    .into_bytes()
}

fn folder(bytes: Vec<u8>) -> tacita_fist::Result<Folder> {
    Folder::of(Path::new("a"), BTreeMap::from([(PathBuf::from("a.c"), bytes)]))
}

proptest! {
    #[test]
    fn every_return_is_covered_exactly_once((body, count) in statement()) {
        let made = instrument(&folder(source(&body, "int")).unwrap(), &extension(TRACE), &kernel(), None).unwrap();
        prop_assert_eq!(made.report.returns, count + 1);
        let text = String::from_utf8(made.files[Path::new("a.c")].clone()).unwrap();
        prop_assert_eq!(text.matches("return fist_ret;").count(), count + 1);
        prop_assert_eq!(text.matches("\"open\"").count(), count + 1);
    }

    #[test]
    fn an_empty_extension_leaves_every_byte_as_it_was((body, _) in statement()) {
        let folder = folder(source(&body, "int")).unwrap();
        let made = instrument(&folder, &extension("%%\n"), &kernel(), None).unwrap();
        prop_assert_eq!(&made.files, &BTreeMap::from([(PathBuf::from("a.c"), source(&body, "int"))]));
    }

    #[test]
    fn any_bytes_are_refused_or_instrumented(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Extension::parse(Path::new("e"), bytes.clone());
        if let Ok(folder) = folder(bytes) {
            let _ = instrument(&folder, &extension(TRACE), &kernel(), None);
        }
    }

    #[test]
    fn any_words_are_refused_or_instrumented(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "{", "}", "(", ")", ";", ",", "return", "if", "static", "struct", "file_operations", "=", "*",
                ".open", "a", "int", "unsigned", "#ifdef X\n", "#endif\n", "\n", "\"s\"", "'", "/*", "*/", "f",
                "%%\n", "%op:all:postcall", "$0", "%op", "fistLastErr()", "const", "void", "[", "]", "\\\n",
            ]),
            0..80,
        )
    ) {
        let text = words.join(" ");
        let _ = Extension::parse(Path::new("e"), text.clone().into_bytes());
        let both = format!("{text}\n{}", String::from_utf8(source("", "int")).unwrap());
        if let Ok(folder) = folder(both.into_bytes()) {
            let _ = instrument(&folder, &extension(TRACE), &kernel(), None);
        }
    }
}
