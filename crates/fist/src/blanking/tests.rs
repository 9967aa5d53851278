use super::*;
use crate::lexer::tokens;

fn seen(source: &str) -> String {
    let bytes = source.as_bytes();
    let out = blanked(bytes, &tokens(bytes));
    assert_eq!(out.len(), bytes.len());
    let ends = |text: &[u8]| -> Vec<usize> {
        text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at).collect()
    };
    assert_eq!(ends(&out), ends(bytes), "lines stay where they are");
    String::from_utf8(out).unwrap()
}

/// With runs of blanks as one.
fn squeezed(source: &str) -> String {
    seen(source).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn directives_and_attributes_go() {
    assert_eq!(
        squeezed("struct a b = {\n#ifdef X\n\t.c = d,\n#endif\n\t.e = f,\n};"),
        "struct a b = { .c = d, .e = f, };"
    );
    assert_eq!(
        squeezed("static int __init f(char __user *p) __releases(x) { }"),
        "static int f(char *p) { }"
    );
}

#[test]
fn types_among_arguments_become_names() {
    assert_eq!(squeezed("a = max_t(unsigned int, b, c);"), "a = max_t( T , b, c);");
    assert_eq!(squeezed("a = list_entry(p, struct foo, list);"), "a = list_entry(p, foo, list);");
    assert_eq!(squeezed("a = f(p, struct foo *, const char *);"), "a = f(p, foo , T );");
    assert_eq!(squeezed("a = va_arg(p, u64 *);"), "a = va_arg(p, u64 );");
}

#[test]
fn parameters_of_functions_stay() {
    for source in [
        "int f(struct inode *dir, unsigned flags, int mode) { return sizeof(struct x); }",
        "int f(void) { return g((struct x *)p, a * b, *c); }",
        "int f(const char *p, enum y z) { return a; }",
    ] {
        assert_eq!(seen(source), source);
    }
}

#[test]
fn loops_that_are_macros_become_loops() {
    assert_eq!(
        squeezed("void f(void) { list_for_each_entry(a, &b, c) { g(); } }"),
        "void f(void) { while (a, &b, c) { g(); } }"
    );
    assert_eq!(
        squeezed("void f(void) { if (x) for_each(a) return; else h(); }"),
        "void f(void) { if (x) while (a) return; else h(); }"
    );
    let plain = "void f(void) { g(a); h(b) + 1; i(c) ? d : e; }";
    assert_eq!(seen(plain), plain);
}

#[test]
fn macros_between_definitions_go() {
    assert_eq!(squeezed("module_init(f)\nmodule_exit(g)\nMODULE_LICENSE(\"GPL\");"), ";");
    let plain = "int f(int a)\n{\n}\n";
    assert_eq!(seen(plain), plain);
}

#[test]
fn arms_that_open_different_brackets_are_one_arm() {
    assert_eq!(
        squeezed(
            "void f(void) {\n#ifdef X\n\tif (a) {\n#else\n\tif (b) {\n#endif\n\t\tg();\n\t}\n}"
        ),
        "void f(void) { if (a) { g(); } }"
    );
    assert_eq!(squeezed("#ifdef X\nint a;\n#else\nint b;\n#endif"), "int a; int b;");
}
