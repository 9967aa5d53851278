//! `tacita-formats(5)`: the specifications of all formats, as a man page.

use std::fmt::Write;

/// The documents, from docs/spec.
const SPECIFICATIONS: [&str; 13] = [
    include_str!("../../../../docs/spec/hifs.md"),
    include_str!("../../../../docs/spec/purge.md"),
    include_str!("../../../../docs/spec/fist.md"),
    include_str!("../../../../docs/spec/dnefs.md"),
    include_str!("../../../../docs/spec/flash.md"),
    include_str!("../../../../docs/spec/pddm.md"),
    include_str!("../../../../docs/spec/oram-store.md"),
    include_str!("../../../../docs/spec/oram-wire.md"),
    include_str!("../../../../docs/spec/oram-engine.md"),
    include_str!("../../../../docs/spec/oram-trace.md"),
    include_str!("../../../../docs/spec/privatefs.md"),
    include_str!("../../../../docs/spec/nbd.md"),
    include_str!("../../../../docs/spec/control.md"),
];

/// The page.
pub(super) fn page() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(
        ".TH TACITA-FORMATS 5 \"\" \"tacita {version}\" \"File formats\"\n\
         .SH NAME\ntacita-formats \\- what tacita writes to disks and networks\n"
    );
    for specification in SPECIFICATIONS {
        page += &converted(specification);
    }
    page
}

/// A document of our own: headings, paragraphs, lists, tables and code.
fn converted(text: &str) -> String {
    let mut page = String::new();
    let (mut is_code, mut is_verbatim) = (false, false);
    for line in text.lines() {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let wants_verbatim = is_code || line.starts_with('|') || line.starts_with("    ");
        if wants_verbatim != is_verbatim {
            page += if wants_verbatim { ".RS 2\n.nf\n" } else { ".fi\n.RE\n" };
            is_verbatim = wants_verbatim;
        }
        if is_fence || line.starts_with("| ---") {
            continue;
        }
        let _ = match line {
            _ if is_verbatim => writeln!(page, "{}", escaped(line)),
            "" => writeln!(page, ".PP"),
            _ => match (line.strip_prefix("# "), line.trim_start_matches('#'), line) {
                (Some(title), ..) => writeln!(page, ".SH {}", escaped(&title.to_uppercase())),
                (None, title, line) if title.len() < line.len() => {
                    writeln!(page, ".SS {}", escaped(title.trim_start()))
                }
                (.., line) => match line.strip_prefix("- ") {
                    Some(item) => writeln!(page, ".IP \\(bu 2\n{}", escaped(item)),
                    None => writeln!(page, "{}", escaped(line.trim_start())),
                },
            },
        };
    }
    if is_verbatim {
        page += ".fi\n.RE\n";
    }
    page
}

/// Text that the formatter takes for nothing else.
pub(super) fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_specifications_are_there() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec");
        let (mut count, page) = (0, page());
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // What is not for people to read is the schema of JSON.
            if path.extension().is_none_or(|kind| kind != "md") {
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let title = text.lines().next().unwrap().strip_prefix("# ").unwrap();
            assert!(page.contains(&format!(".SH {}\n", escaped(&title.to_uppercase()))), "{title}");
            count += 1;
        }
        assert_eq!(count, SPECIFICATIONS.len());
        let macros = ["SH", "SS", "PP", "IP", "RS", "RE", "nf", "fi", "TH"];
        for line in page.lines().filter_map(|line| line.strip_prefix('.')) {
            assert!(macros.contains(&line.split(' ').next().unwrap()), ".{line}");
        }
    }

    #[test]
    fn a_document_is_a_page() {
        let text = "# Title, 1-a\n\nOne\\two\n.three\n- item\n## Next\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n\
                    ```\n.x\n```\nend\n";
        let wanted = ".SH TITLE, 1\\-A\n.PP\nOne\\etwo\n\\&.three\n.IP \\(bu 2\nitem\n.SS Next\n.RS 2\n.nf\n\
                      | a | b |\n| 1 | 2 |\n.fi\n.RE\n.PP\n.RS 2\n.nf\n\\&.x\n.fi\n.RE\nend\n";
        assert_eq!(converted(text), wanted);
    }
}
