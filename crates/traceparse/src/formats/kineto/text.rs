//! Turns string and JSON tokens into clean text, and says what had to be repaired.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::formats::interner;
use crate::stats::Code;

/// Deepest nesting of an argument that is kept; deeper ones would break readers of the text.
const MAX_DEPTH: usize = 256;

/// What a token means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The inside of a string.
    Text,
    /// The same of a recorder that escapes nothing.
    Unescaped,
    /// A JSON value, kept as text in one spelling.
    Json,
}

impl interner::Form for Form {
    type Repairs = Repairs;

    fn decode(self, raw: &[u8]) -> (Cow<'_, str>, Repairs) {
        let (text, repairs) = match self {
            Self::Text => decode_string(raw),
            Self::Unescaped => unescaped_string(raw),
            Self::Json => canonical_json(raw),
        };
        (text.into(), repairs)
    }
}

/// A set of repairs made to one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Repairs(u8);

impl Repairs {
    pub(crate) const ESCAPE: Self = Self(1);
    pub(crate) const CONTROL: Self = Self(2);
    pub(crate) const UTF8: Self = Self(4);
    pub(crate) const NON_FINITE: Self = Self(8);
    pub(crate) const COMMA: Self = Self(16);
    pub(crate) const DEPTH: Self = Self(32);
    pub(crate) const SYNTAX: Self = Self(64);

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The findings that the repairs count as.
    pub(crate) fn codes(self) -> impl Iterator<Item = Code> {
        [
            (Self::ESCAPE, Code::BadEscape),
            (Self::CONTROL, Code::ControlCharacter),
            (Self::UTF8, Code::BadUtf8),
            (Self::NON_FINITE, Code::BareNonFinite),
            (Self::COMMA, Code::TrailingComma),
            (Self::DEPTH, Code::DeepNesting),
            (Self::SYNTAX, Code::BadValue),
        ]
        .into_iter()
        .filter_map(move |(repair, code)| self.contains(repair).then_some(code))
    }
}

/// The text between the quotes of a string token.
///
/// With one escape that is none, its writer knew of none, and every backslash stands for itself.
pub(crate) fn decode_string(bytes: &[u8]) -> (String, Repairs) {
    if !bytes.contains(&b'\\') {
        return unescaped_string(bytes);
    }
    let (text, mut repairs) = clean(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((c, used)) = unescape(rest.as_bytes()) else { return unescaped_string(bytes) };
        if c == char::REPLACEMENT_CHARACTER {
            repairs.add(Repairs::UTF8);
        }
        out.push(c);
        rest = &rest[used..];
    }
    out.push_str(rest);
    (out, repairs)
}

/// The text between the quotes of a string token in which every backslash stands for itself.
fn unescaped_string(bytes: &[u8]) -> (String, Repairs) {
    let (text, mut repairs) = clean(bytes);
    if bytes.contains(&b'\\') {
        repairs.add(Repairs::ESCAPE);
    }
    (text.into_owned(), repairs)
}

fn clean(bytes: &[u8]) -> (Cow<'_, str>, Repairs) {
    let mut repairs = Repairs::default();
    if bytes.iter().any(|&b| b < b' ') {
        repairs.add(Repairs::CONTROL);
    }
    let text = String::from_utf8_lossy(bytes);
    if matches!(text, Cow::Owned(_)) {
        repairs.add(Repairs::UTF8);
    }
    (text, repairs)
}

/// What the backslashes of texts tell of their writer, by how many texts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backslashes {
    /// Those that are no escapes, or stand where a quote was not escaped: nobody escapes.
    pub(crate) invalid: u64,
    /// Those of `\n` and the like alone, which may be the beginning of a name behind a path's separator.
    pub(crate) letters: u64,
    /// Those of escaped backslashes and quotes, which hardly any but an escaping writer has.
    pub(crate) escaped: u64,
}

impl Backslashes {
    /// Counts a text with a backslash in it.
    pub(crate) fn count(&mut self, bytes: &[u8]) {
        let (mut rest, mut is_escaped) = (bytes, false);
        while let Some(at) = memchr::memchr(b'\\', rest) {
            rest = &rest[at + 1..];
            let Some((c, used)) = unescape(rest) else {
                self.invalid += 1;
                return;
            };
            is_escaped |= matches!(c, '"' | '\\');
            rest = &rest[used..];
        }
        *if is_escaped { &mut self.escaped } else { &mut self.letters } += 1;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.invalid += other.invalid;
        self.letters += other.letters;
        self.escaped += other.escaped;
    }

    /// Whether some of the texts would be read otherwise by who knows that their writer escapes nothing.
    ///
    /// A file that was put together has texts of several writers: the most count.
    pub(crate) fn mislead(self) -> bool {
        self.invalid > self.escaped && self.letters + self.escaped > 0
    }
}

/// The character that the escape behind a backslash stands for, and the bytes it takes.
fn unescape(rest: &[u8]) -> Option<(char, usize)> {
    let simple = match rest.first()? {
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unescape_unicode(rest),
        _ => return None,
    };
    Some((simple, 1))
}

fn unescape_unicode(rest: &[u8]) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = rest.get(from..from + 4)?;
        digits.iter().try_fold(0, |unit, &digit| Some(16 * unit + char::from(digit).to_digit(16)?))
    };
    let high = unit(1)?;
    if (0xd800..0xdc00).contains(&high) {
        let low = rest.get(5..7).filter(|s| *s == br"\u").and_then(|_| unit(7));
        if let Some(low) = low.filter(|low| (0xdc00..0xe000).contains(low)) {
            let c = char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))?;
            return Some((c, 11));
        }
    }
    // A lone surrogate is no character.
    Some((char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), 5))
}

/// A JSON token in one spelling: no white space but one blank behind `,` and `:`.
///
/// Recorders and the tools behind them space the same list differently; texts that mean the same
/// must be equal, or grouping by them fails. The result is valid JSON: bare `nan` and `inf` become
/// texts, raw control characters become escapes, and a token that is no JSON at all becomes a text.
pub(crate) fn canonical_json(bytes: &[u8]) -> (String, Repairs) {
    let mut repairs = Repairs::default();
    let text = String::from_utf8_lossy(bytes);
    if matches!(text, std::borrow::Cow::Owned(_)) {
        repairs.add(Repairs::UTF8);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    let mut depth = 0_usize;
    while let Some(c) = rest.chars().next() {
        match c {
            '"' => {
                rest = copy_string(rest, &mut out, &mut repairs);
                continue;
            }
            ' ' | '\n' | '\r' | '\t' => {}
            ',' => out.push_str(", "),
            ':' => out.push_str(": "),
            '[' | '{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    repairs.add(Repairs::DEPTH);
                    return (String::new(), repairs);
                }
                out.push(c);
            }
            ']' | '}' => {
                depth = depth.saturating_sub(1);
                if out.ends_with(", ") {
                    out.truncate(out.len() - 2);
                    repairs.add(Repairs::COMMA);
                }
                out.push(c);
            }
            _ => {
                rest = copy_bare(rest, &mut out, &mut repairs);
                continue;
            }
        }
        rest = &rest[c.len_utf8()..];
    }
    // Strings and words are valid by now; brackets, commas and colons may stand anywhere.
    let is_nested = matches!(bytes.first(), Some(b'[' | b'{'));
    if is_nested && serde_json::from_str::<&RawValue>(&out).is_err() {
        repairs.add(Repairs::SYNTAX);
        out.clear();
        push_quoted(&text, &mut out);
    }
    (out, repairs)
}

/// Copies a string token with its quotes and returns what follows it.
fn copy_string<'a>(text: &'a str, out: &mut String, repairs: &mut Repairs) -> &'a str {
    let mut end = text.len();
    let mut skip = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if skip => skip = false,
            b'\\' => skip = true,
            b'"' => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    let body = &text[1..end];
    if body.bytes().all(|b| b >= b' ' && b != b'\\') {
        out.push('"');
        out.push_str(body);
        out.push('"');
    } else {
        let (clean, found) = decode_string(body.as_bytes());
        repairs.add(found);
        push_quoted(&clean, out);
    }
    text.get(end + 1..).unwrap_or("")
}

/// Copies a number or bare word and returns what follows it.
fn copy_bare<'a>(text: &'a str, out: &mut String, repairs: &mut Repairs) -> &'a str {
    let end = text.find(|c: char| ",:[]{}\" \n\r\t".contains(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let is_json =
        matches!(word, "true" | "false" | "null") || serde_json::from_str::<serde_json::Number>(word).is_ok();
    if is_json {
        out.push_str(word);
    } else {
        repairs.add(Repairs::NON_FINITE);
        push_quoted(word, out);
    }
    rest
}

/// Appends `text` as a JSON string.
pub(crate) fn push_quoted(text: &str, out: &mut String) {
    use std::fmt::Write;
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_bad_ones_kept() {
        assert_eq!(decode_string(br"a\n\u00e9\ud83d\ude00\/"), ("a\né😀/".into(), Repairs::default()));
        assert_eq!(decode_string(br"C:\Users\q\u12"), (r"C:\Users\q\u12".into(), Repairs::ESCAPE));
        assert_eq!(decode_string(br"torch\nn\mod"), (r"torch\nn\mod".into(), Repairs::ESCAPE));
        assert_eq!(decode_string(br"\ud800x"), ("\u{fffd}x".into(), Repairs::UTF8));
        assert_eq!(decode_string(b"a\tb"), ("a\tb".into(), Repairs::CONTROL));
        assert_eq!(decode_string(b"a\xffb"), ("a\u{fffd}b".into(), Repairs::UTF8));
    }

    #[test]
    fn json_has_one_spelling() {
        let one = canonical_json(b"[[1,2], [ ] ,{\"a\" :\"x, y\"}]");
        assert_eq!(one, ("[[1, 2], [], {\"a\": \"x, y\"}]".into(), Repairs::default()));
        assert_eq!(canonical_json(b"[\n    1,\n    2\n]").0, "[1, 2]");
        assert_eq!(
            canonical_json(b"[nan, -inf, 1e5]"),
            ("[\"nan\", \"-inf\", 1e5]".into(), Repairs::NON_FINITE)
        );
        assert_eq!(canonical_json(b"[\"a\tb\"]"), ("[\"a\\u0009b\"]".into(), Repairs::CONTROL));
        assert_eq!(canonical_json(b"[1,]"), ("[1]".into(), Repairs::COMMA));
        assert_eq!(canonical_json("[".repeat(300).as_bytes()).1, Repairs::DEPTH);
        assert_eq!(canonical_json(b"[1 2}"), ("\"[1 2}\"".into(), Repairs::SYNTAX));
    }

    #[test]
    fn quoting_round_trips() {
        let mut out = String::new();
        push_quoted("a\"b\\c\n\u{1}é", &mut out);
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), "a\"b\\c\n\u{1}é");
    }
}
