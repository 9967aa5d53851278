//! The evidence as one page: text and pictures in one file that any browser opens.

use std::fmt::Write;

use super::{Chapter, Stop};

const STYLE: &str = "body { font: 16px/1.5 sans-serif; color: #222; max-width: 52em; \
     margin: 2em auto; padding: 0 1em } img { max-width: 100%; border: 1px solid #ddd } \
     pre { overflow-x: auto; background: #f6f6f6; padding: 0.5em } \
     td { vertical-align: top; padding: 0.2em 0.8em 0.2em 0; overflow-wrap: anywhere } \
     td:first-child { white-space: nowrap } .yes { color: #00734c } \
     .no { color: #b2182b; font-weight: bold } .seen { color: #555 }";

/// The whole page.
pub(super) fn page(chapters: &[(&Stop, Chapter)]) -> String {
    let mut body = String::from("<h1>Tacita: storage that keeps silent</h1>\n<ol>\n");
    for (stop, chapter) in chapters {
        let (mark, word) = if chapter.holds() { ("yes", "holds") } else { ("no", "does not hold") };
        let title = escaped(stop.title);
        let _ = writeln!(
            body,
            r##"<li><a href="#{}">{title}</a>: <span class="{mark}">{word}</span></li>"##,
            stop.system
        );
    }
    body += "</ol>\n";
    for (stop, chapter) in chapters {
        let _ = write!(body, "{}", section(stop, chapter));
    }
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>Tacita: the evidence</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\
         <p>Made by <code>tacita tour</code>, version {version}.</p>\n</body>\n</html>\n"
    )
}

fn section(stop: &Stop, chapter: &Chapter) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "<h2 id=\"{}\">{}</h2>", stop.system, escaped(stop.title));
    let _ = writeln!(text, "<p>{}</p>", escaped(&chapter.done));
    if !chapter.drawn.is_empty() {
        let _ = writeln!(text, "<pre>{}</pre>", escaped(&chapter.drawn.join("\n")));
    }
    for (name, svg) in &chapter.pictures {
        // As an image of its own, so that no picture's style gets into another.
        let _ = writeln!(
            text,
            "<p><img alt=\"{name}\" src=\"data:image/svg+xml,{}\"></p>",
            percent_encoded(svg)
        );
    }
    text += "<table>\n";
    for evidence in &chapter.evidence {
        let (mark, word) = match evidence.holds {
            Some(true) => ("yes", "yes"),
            Some(false) => ("no", "NO"),
            None => ("seen", "-"),
        };
        let _ = writeln!(
            text,
            "<tr><td class=\"{mark}\">{word}</td><td>{}<br><span class=\"seen\">{}</span></td></tr>",
            escaped(&evidence.what),
            escaped(&evidence.seen)
        );
    }
    text + "</table>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What may not stand in an address, nor end an attribute.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 5 / 4);
    for byte in text.bytes() {
        match byte {
            b'%' | b'#' | b'"' | b'<' | b'>' | b'&' | b'\n' => {
                let _ = write!(encoded, "%{byte:02X}");
            }
            _ => encoded.push(char::from(byte)),
        }
    }
    encoded
}
