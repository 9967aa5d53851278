//! The evidence as one page: text and pictures in one file that any browser opens.

use std::fmt::Write;

use super::{Chapter, Stop};

// A picture has a white ground of its own. On a narrow screen its letters would be too small to read: it
// keeps its size there, and scrolls.
const STYLE: &str = ":root { color-scheme: light dark } \
     body { font: 16px/1.5 sans-serif; color: #222; background: #fff; max-width: 52em; \
     margin: 2em auto; padding: 0 1em } h2 { margin-top: 2em } a { color: #0645ad } \
     .picture { overflow-x: auto } \
     img { max-width: 100%; min-width: 40em; box-sizing: border-box; border: 1px solid #ddd } \
     pre { overflow-x: auto; background: #f6f6f6; padding: 0.5em } \
     td { vertical-align: top; padding: 0.2em 0.8em 0.2em 0; overflow-wrap: anywhere } \
     td:first-child { white-space: nowrap } .yes { color: #00734c } \
     .no { color: #b2182b; font-weight: bold } .seen { color: #555 } \
     @media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } \
     a { color: #8ab4f8 } pre { background: #262626 } img { border-color: #444 } \
     .yes { color: #4cc38a } .no { color: #ff8080 } .seen { color: #aaa } }";

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
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
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
            "<p class=\"picture\"><img alt=\"{name}\" src=\"data:image/svg+xml,{}\"></p>",
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
            b' ' | b'!' | b'$'..=b'~' if !b"%&<>".contains(&byte) => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_what_it_was_in_an_address() {
        assert_eq!(
            percent_encoded("<a b=\"1\">#%&\n\u{e9}~</a>"),
            "%3Ca b=%221%22%3E%23%25%26%0A%C3%A9~%3C/a%3E"
        );
    }
}
