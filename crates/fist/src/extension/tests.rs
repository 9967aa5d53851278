use super::*;

fn parse(text: &str) -> Result<Extension> {
    Extension::parse(Path::new("e.fist"), text.as_bytes().to_vec())
}

/// The error of an extension with one rule, as shown, and its remedy.
fn refused(text: &str) -> String {
    let error = parse(text).unwrap_err();
    assert_eq!(error.kind(), Kind::Extension);
    format!("{error}\n{}", error.remedy().unwrap_or_default())
}

#[test]
fn the_extension_of_the_papers_figure_3_is_one() {
    let text = "%{\n/* print out return values */\n%}\n%%\n%op:all:postcall {\n\
                printk(\"OP_%s: %d (pid: %d)\\n\",\n%op, fistLastErr(), %pid);\n}\n%%\n\
                /* no extra routines are needed */\n";
    let extension = parse(text).unwrap();
    let [rule] = &extension.rules[..] else { panic!("one rule") };
    assert_eq!((&rule.target, rule.when), (&Target::All, When::Postcall));
    let found: Vec<Part> =
        parts(&extension, &rule.code).unwrap().into_iter().map(|(_, part)| part).collect();
    assert_eq!(found, [Part::Operation, Part::LastErr, Part::Global("pid")]);
    assert!(!extension.has_extra());
    assert_eq!(extension.text(&extension.header).trim(), "/* print out return values */");
}

#[test]
fn options_functions_and_additions_are_read() {
    let text = "%mntopt passes=int:3\n%mntopt marked=bool // only those\n%mntopt how=string:\"c\"\n%mntopt method=c|e|h\n%%\n\
                %func:ext2_free?:precall { a(%1, $0.inode->i_size % 7); };\n\
                %add:super_operations:evict_inode { b($0); }\n%%\nint a;\n";
    let extension = parse(text).unwrap();
    let words = ["c", "e", "h"].map(str::to_owned).to_vec();
    let options: Vec<(&str, OptionType, &str)> =
        extension.options.iter().map(|o| (&*o.name, o.value.clone(), &*o.default)).collect();
    assert_eq!(
        options,
        [
            ("passes", OptionType::Int, "3"),
            ("marked", OptionType::Bool, "0"),
            ("how", OptionType::Text, "\"c\""),
            ("method", OptionType::Words(words), "\"c\""),
        ]
    );
    assert_eq!(extension.rules[0].target, Target::Function("ext2_free".to_owned(), true));
    assert_eq!(extension.additions[0].entry, "evict_inode");
    assert!(extension.has_extra());
}

#[test]
fn functions_of_the_last_part_are_exported_under_their_own_conditions() {
    let extra =
        "#ifdef A\nint a(void)\n{\n\treturn 0;\n}\n#endif\nstatic int b(void)\n{\n\treturn 1;\n}\n";
    let extension = parse(&format!("%%\n%%\n{extra}")).unwrap();
    assert_eq!(extension.shared_functions(), ["a"]);
    let wanted = extra.replacen("}\n", "}\nEXPORT_SYMBOL_GPL(a);\n", 1);
    assert_eq!(extension.exporting_extra().trim(), wanted.trim());
}

#[test]
fn what_is_wrong_is_shown_with_its_place_and_a_remedy() {
    for (text, wanted) in [
        ("", "ends without a line of `%%`"),
        ("%{\n%%\n", "e.fist:1:1: the header that begins here does not end"),
        ("%}\n%%\n", "ends here that has not begun"),
        ("%%\n%%\n%%\n", "e.fist:3:1: this is the third line"),
        ("%%\n%op:all:postcall {\n", "e.fist:2:18: the code that begins here does not end"),
        ("%%\n%op:all:postcall { ( }\n", "brackets do not match"),
        ("%%\n%op:all:after { }\n", "e.fist:2:9: there is no part after"),
        ("%%\n%opp:all:postcall { }\n", "there is no rule %opp"),
        ("%%\n%op:all:postcall { f(%opp); }\n", "e.fist:2:22: there is no primitive %opp"),
        ("%%\n%op:all:postcall { f($0.nam); }\n", "$0 has no attribute nam"),
        ("%%\n%op:all:postcall { f($1); }\n", "$1 is no object"),
        ("%%\n%op:all:precall { f(fistLastErr()); }\n", "no result before the call"),
        ("%%\n%op:all:precall { return 0; }\n", "cannot use `return`"),
        ("%%\n%op:all:precall { fistRetrunErr(1); }\n", "there is no primitive fistRetrunErr"),
        ("%%\n%func:f:call { }\n", "functions cannot be replaced"),
        ("%%\n%add:super_ops:evict_inode { }\n", "there are no vectors of type super_ops"),
        ("%mntopt a=float\n%%\n", "cannot be of type float"),
        ("%mntopt a=int\n%mntopt a=int\n%%\n", "e.fist:2:1: the mount option a is declared twice"),
        ("%mntopt a=c|d|c\n%%\n", "e.fist:1:15: c is there twice"),
        ("%mntopt a=c|d:c\n%%\n", "no default for an option"),
        ("%mntopt a=c||d\n%%\n", "rules look like"),
        ("%mntopt while=bool\n%%\n", "e.fist:1:9: while is a word of C"),
        ("%mntopt int=int\n%%\n", "int is a word of C"),
        ("%mntopt a=int:2147483648\n%%\n", "no default for an option"),
        ("%mntopt a=string:\"12345678901234567890123456789012\"\n%%\n", "no default for an option"),
        ("%option a\n%%\n", "there is no declaration %option"),
        ("%%\nint x;\n", "a declaration or rule begins with `%`"),
    ] {
        let said = refused(text);
        assert!(said.contains(wanted), "{text:?} gives\n{said}");
    }
    let not_text = Extension::parse(Path::new("e"), b"%%\n\xff".to_vec()).unwrap_err();
    assert!(not_text.to_string().contains("e:2:1: this is not text"));
}

#[test]
fn groups_and_names_cover_their_operations() {
    assert!(Target::All.covers("anything"));
    assert!(Target::Group("deleting").covers("unlink"));
    assert!(!Target::Group("deleting").covers("read_iter"));
    assert!(Target::Operation("unlink".to_owned()).covers("unlink"));
    assert!(!Target::Function("unlink".to_owned(), false).covers("unlink"));
}
