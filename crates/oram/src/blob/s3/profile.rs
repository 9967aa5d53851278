//! Files in which programs for Amazon's services find credentials, regions and servers, by profiles:
//! their text, and what of it is one profile's. Pure.
//!
//! Lines are `[PROFILE]`, `KEY = VALUE`, or comments, which begin with `#` or `;`; behind a value a comment
//! has a space before it. What is further in than the key before it belongs to that key. What other programs
//! would pass over or guess at is refused here, with its line, for whoever goes on with other credentials,
//! or at another server, may not notice.

use std::collections::BTreeMap;
use std::fmt;

/// Bytes of such a file at most.
pub(super) const FILE_LEN_MAX: usize = 1 << 20;

/// The name of the profile that is used where none is named.
pub(super) const DEFAULT: &str = "default";
/// What makes credentials: they are taken from one file, all of them.
const KEYS: [&str; 3] = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"];

/// What lines are made of besides words.
const BLANK: [char; 2] = [' ', '\t'];
const COMMENT: [char; 2] = ['#', ';'];

/// Which of the two files it is: they call profiles differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileFile {
    /// `~/.aws/credentials`: `[NAME]`.
    Credentials,
    /// `~/.aws/config`: `[default]`, `[profile NAME]`, and sections that are no profiles.
    Config,
}

/// What a file says of its profiles.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Profiles(BTreeMap<Section, Values>);

/// What the two files say of one profile.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Profile {
    values: Values,
    services: Values,
}

/// A line that is not understood; nothing of it is told, for it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongLine {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

/// By keys; a key that belongs to another one is behind it and a dot.
type Values = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Profile(String),
    /// `[default]` in a file where profiles are called so: `[profile default]` comes before it.
    BareDefault,
    Services(String),
    /// Of no interest.
    Other(String),
}

/// Where a reader of lines is.
#[derive(Default)]
struct Reader {
    profiles: Profiles,
    section: Option<Section>,
    /// The key before, and how far in it is.
    last: Option<(String, usize)>,
}

impl Profiles {
    /// What a file of these bytes says.
    ///
    /// # Errors
    /// The first line that is not understood, or that says again what another one says.
    pub fn parse(bytes: &[u8], file: ProfileFile) -> Result<Self, WrongLine> {
        if bytes.len() > FILE_LEN_MAX {
            return Err(WrongLine { line: 1, what: "the file is longer than 1 MiB" });
        }
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let line = bytes[..e.valid_up_to()].split(|b| *b == b'\n').count();
            WrongLine { line, what: "it is not UTF-8" }
        })?;
        let mut reader = Reader::default();
        for (line, text) in (1..).zip(text.lines()) {
            reader.line(text, file).map_err(|what| WrongLine { line, what })?;
        }
        Ok(reader.profiles)
    }

    /// All that this and the other file say of the profile `name`; `None` if neither knows it.
    pub(super) fn profile(&self, config: &Self, name: &str) -> Option<Profile> {
        let (own, other) = (self.named(name), config.named(name));
        if own.is_none() && other.is_none() {
            return None;
        }
        let mut values = other.cloned().unwrap_or_default();
        let own = own.cloned().unwrap_or_default();
        if KEYS.iter().any(|key| own.contains_key(*key)) {
            values.retain(|key, _| !KEYS.contains(&key.as_str()));
        }
        values.extend(own);
        let services = values.get("services").map(|name| Section::Services(name.clone()));
        let services = services.and_then(|section| config.0.get(&section)).cloned();
        Some(Profile { values, services: services.unwrap_or_default() })
    }

    fn named(&self, name: &str) -> Option<&Values> {
        let found = self.0.get(&Section::Profile(name.to_owned()));
        found.or_else(|| self.0.get(&Section::BareDefault).filter(|_| name == DEFAULT))
    }
}

impl Profile {
    /// What it says for `key`, if that is something.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The server of buckets that it names.
    pub(super) fn endpoint(&self) -> Option<&str> {
        let named = self.services.get("s3.endpoint_url").map(String::as_str);
        named.or_else(|| self.value("endpoint_url"))
    }
}

impl Reader {
    fn line(&mut self, line: &str, file: ProfileFile) -> Result<(), &'static str> {
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return Err("there are bytes in it that no text has");
        }
        let text = line.trim_matches(BLANK);
        if text.is_empty() || text.starts_with(COMMENT) {
            return Ok(());
        }
        let indent = line.len() - line.trim_start_matches(BLANK).len();
        if indent == 0 && text.starts_with('[') {
            return self.begin(section(without_comment(text), file)?);
        }
        let Some(section) = &self.section else { return Err("no [PROFILE] stands before it") };
        let values = self.profiles.0.get_mut(section).expect("it was made with its line");
        if let Some((last, last_indent)) = &self.last
            && indent > *last_indent
        {
            let value = values.get_mut(last).expect("its line was read");
            if !value.is_empty() {
                // What goes on over several lines is nothing that is used here.
                value.push('\n');
                value.push_str(text);
                return Ok(());
            }
            let (key, value) = pair(text)?;
            return put(values, format!("{last}.{key}"), value);
        }
        let (key, value) = pair(text)?;
        self.last = Some((key.clone(), indent));
        put(values, key, value)
    }

    fn begin(&mut self, section: Section) -> Result<(), &'static str> {
        if self.profiles.0.insert(section.clone(), Values::new()).is_some() {
            return Err("a line before it has begun the same");
        }
        (self.section, self.last) = (Some(section), None);
        Ok(())
    }
}

fn section(text: &str, file: ProfileFile) -> Result<Section, &'static str> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let name = inner.map(|name| name.trim_matches(BLANK)).unwrap_or_default();
    if name.is_empty() || name.contains(['[', ']']) {
        return Err("it is to be [PROFILE]");
    }
    let (kind, rest) = name.split_once(BLANK).unwrap_or((name, ""));
    let rest = rest.trim_matches(BLANK);
    let quoted = ['"', '\''].iter().find_map(|q| rest.strip_prefix(*q)?.strip_suffix(*q));
    let of = quoted.unwrap_or(rest).to_owned();
    Ok(match file {
        ProfileFile::Credentials => Section::Profile(name.to_owned()),
        ProfileFile::Config if name == DEFAULT => Section::BareDefault,
        ProfileFile::Config if kind == "profile" && !of.is_empty() => Section::Profile(of),
        ProfileFile::Config if kind == "services" && !of.is_empty() => Section::Services(of),
        ProfileFile::Config => Section::Other(name.to_owned()),
    })
}

/// `KEY = VALUE`; keys are the same in capitals.
fn pair(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("it is neither [PROFILE] nor KEY = VALUE")?;
    let key = key.trim_matches(BLANK);
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("it has no key before the =");
    }
    Ok((key.to_ascii_lowercase(), without_comment(value).trim_matches(BLANK).to_owned()))
}

fn put(values: &mut Values, key: String, value: String) -> Result<(), &'static str> {
    match values.insert(key, value) {
        None => Ok(()),
        Some(_) => Err("a line before it says something for the same key"),
    }
}

/// Without what stands behind a blank and the sign of a comment.
fn without_comment(text: &str) -> &str {
    let begins = |(at, _): &(usize, &str)| *at == 0 || text[..*at].ends_with(BLANK);
    let comment = text.match_indices(COMMENT).find(begins);
    comment.map_or(text, |(at, _)| &text[..at]).trim_end_matches(BLANK)
}

impl fmt::Debug for Profiles {
    /// How many; their values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiles").field("sections", &self.0.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Display for WrongLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Profiles {
        Profiles::parse(text.as_bytes(), ProfileFile::Config).unwrap()
    }

    fn credentials(text: &str) -> Profiles {
        Profiles::parse(text.as_bytes(), ProfileFile::Credentials).unwrap()
    }

    #[test]
    fn profiles_are_read_as_others_write_them() {
        let own = credentials(
            "# made by hand\n\
             [default]\naws_access_key_id = A # of the old account\nAWS_SECRET_ACCESS_KEY=b/+=c#d\n\n\
             [my store] ; a comment\n  aws_access_key_id=E\r\n  aws_secret_access_key = f\n",
        );
        let other = config(
            "[default]\nregion = eu-west-1\n[profile 'my store']\nregion=eu-west-2\nservices = at home\n\
             s3 =\n  max_concurrent_requests = 20\n  addressing_style = path\n\
             [services at home]\ns3 =\n    endpoint_url = http://home:9000\nsts =\n    endpoint_url = x\n\
             [sso-session other]\nregion = nowhere\n",
        );
        let profile = own.profile(&other, "default").unwrap();
        assert_eq!(profile.value("aws_access_key_id"), Some("A"));
        assert_eq!(profile.value("aws_secret_access_key"), Some("b/+=c#d"));
        assert_eq!((profile.value("region"), profile.endpoint()), (Some("eu-west-1"), None));
        let profile = own.profile(&other, "my store").unwrap();
        assert_eq!(profile.value("aws_secret_access_key"), Some("f"));
        assert_eq!(profile.value("s3.addressing_style"), Some("path"));
        assert_eq!(profile.endpoint(), Some("http://home:9000"));
        assert_eq!(own.profile(&other, "other"), None);
        assert!(!format!("{own:?} {profile:?}").contains("b/"));
    }

    #[test]
    fn credentials_come_from_one_file_and_the_named_default_comes_first() {
        let own = credentials("[a]\naws_access_key_id = OWN\n");
        let other = config(
            "[profile a]\naws_access_key_id = O\naws_secret_access_key = s\n\
             [default]\nregion = bare\n[profile default]\nregion = named\n",
        );
        let profile = own.profile(&other, "a").unwrap();
        assert_eq!(profile.value("aws_access_key_id"), Some("OWN"));
        assert_eq!(profile.value("aws_secret_access_key"), None);
        assert_eq!(own.profile(&other, "default").unwrap().value("region"), Some("named"));
    }

    #[test]
    fn lines_that_are_not_understood_are_named_and_not_shown() {
        let read = |text: &[u8]| Profiles::parse(text, ProfileFile::Config).unwrap_err();
        for (line, text) in [
            (1, "aws_secret_access_key = hidden"),
            (2, "[default]\nhidden"),
            (2, "[default]\n= hidden"),
            (2, "[default]\na b = hidden"),
            (1, "[default"),
            (1, "[]"),
            (1, "[a] hidden"),
            (3, "[default]\na = 1\nA = hidden"),
            (3, "[default]\na = 1\n[default]"),
            (2, "[default]\na = hidden\u{1b}[2J"),
            (3, "[default]\ns3 =\n hidden"),
        ] {
            let wrong = read(text.as_bytes());
            assert_eq!(wrong.line, line, "{text}");
            assert!(!wrong.to_string().contains("hidden"), "{wrong}");
        }
        assert_eq!(read(b"[default]\na = \xff").line, 2);
        assert_eq!(read(&vec![b'\n'; FILE_LEN_MAX + 1]).line, 1);
    }
}
