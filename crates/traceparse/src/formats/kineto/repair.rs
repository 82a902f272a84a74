//! Rewrites damaged JSON where the intent is clear, so that the scanner can read it.
//!
//! Recorders write names and keyword arguments without escaping quotes. A quote ends a string only
//! where something follows that can follow a string there; every other quote belongs to the text.

use super::boundary::{self, Place, skip_space};
use super::scan::is_space;

/// Deepest nesting that is repaired.
const MAX_DEPTH: usize = 64;
/// Longest key.
const MAX_KEY: usize = 256;

/// Why something was not rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It goes on behind more event boundaries than allowed.
    Crossed,
    /// It is beyond repair, or the bytes end before it does.
    Failed,
}

/// An attempt to rewrite something, and how far it went.
///
/// Nothing behind `reached` plus [`boundary::LOOKAHEAD`] has a part in the outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// What the scanner can read, made from everything up to `reached`.
    pub(crate) outcome: Halting<Vec<u8>>,
    pub(crate) reached: usize,
}

/// Rewrites the object at the start of `bytes`, inside of which so many event boundaries may lie.
pub(crate) fn rewrite_object(bytes: &[u8], boundaries: usize) -> Attempt {
    Rewriter::new(bytes, Some(boundaries)).attempt(|rewriter| {
        if bytes.first() != Some(&b'{') {
            return Err(Halt::Failed);
        }
        rewriter.value()?;
        rewriter.run_until(0)
    })
}

/// Rewrites the value of an object's member at the start of `bytes`.
pub(crate) fn rewrite_member(bytes: &[u8]) -> Attempt {
    let mut rewriter = Rewriter::new(bytes, None);
    rewriter.open.push(b'{');
    rewriter.attempt(|rewriter| {
        rewriter.value()?;
        rewriter.run_until(1)
    })
}

type Halting<T> = std::result::Result<T, Halt>;

struct Rewriter<'a> {
    bytes: &'a [u8],
    at: usize,
    out: Vec<u8>,
    /// Opening brackets of the containers around the position.
    open: Vec<u8>,
    /// Boundaries that may still be crossed; `None` for any number.
    boundaries: Option<usize>,
    /// Boundaries are counted up to here.
    counted: usize,
    /// The position furthest on that was looked at.
    reached: usize,
}

impl<'a> Rewriter<'a> {
    fn new(bytes: &'a [u8], boundaries: Option<usize>) -> Self {
        Self { bytes, at: 0, out: Vec::new(), open: Vec::new(), boundaries, counted: 0, reached: 0 }
    }

    fn attempt(mut self, run: impl FnOnce(&mut Self) -> Halting<()>) -> Attempt {
        match run(&mut self) {
            Ok(()) => Attempt { outcome: Ok(self.out), reached: self.at },
            Err(halt) => Attempt { outcome: Err(halt), reached: self.reached.max(self.at) },
        }
    }

    /// Goes on to `to`, if no more boundaries lie before it than allowed.
    fn reach(&mut self, to: usize) -> Halting<()> {
        let Some(left) = &mut self.boundaries else {
            self.reached = self.reached.max(to);
            return Ok(());
        };
        let end = self.bytes.len().min(to + 1);
        while let Some(place) = boundary::find_between(self.bytes, self.counted, end) {
            let (Place::Event(at) | Place::Closing(at)) = place;
            self.counted = at;
            if *left == 0 || matches!(place, Place::Closing(_)) {
                self.reached = self.reached.max(at);
                return Err(Halt::Crossed);
            }
            *left -= 1;
        }
        self.counted = self.counted.max(to);
        self.reached = self.reached.max(to);
        Ok(())
    }

    /// Rewrites until only `depth` containers are open.
    fn run_until(&mut self, depth: usize) -> Halting<()> {
        while self.open.len() > depth {
            let container = self.open.last().copied();
            match (container, self.next_token()?) {
                (_, b',') => self.at += 1,
                (Some(b'{'), b'}') | (Some(b'['), b']') => self.close(),
                (Some(b'{'), b'"') => self.member()?,
                (Some(b'{'), _) | (_, b'}') => return Err(Halt::Failed),
                _ => {
                    self.separate();
                    self.value()?;
                }
            }
        }
        Ok(())
    }

    fn next_token(&mut self) -> Halting<u8> {
        let spaces = self.bytes[self.at..].iter().take_while(|&&b| is_space(b)).count();
        self.at += spaces;
        self.reach(self.at)?;
        self.bytes.get(self.at).copied().ok_or(Halt::Failed)
    }

    fn separate(&mut self) {
        if !matches!(self.out.last(), None | Some(b'[' | b'{')) {
            self.out.push(b',');
        }
    }

    fn close(&mut self) {
        self.open.pop();
        self.out.push(self.bytes[self.at]);
        self.at += 1;
    }

    fn member(&mut self) -> Halting<()> {
        self.separate();
        let boundaries = self.boundaries;
        let end = self.find_end(|rest| follows(rest, b':'), MAX_KEY).map_err(|_| Halt::Failed)?;
        if self.boundaries != boundaries {
            // A text may hold anything, a key does not.
            return Err(Halt::Failed);
        }
        self.push_string(end);
        self.next_token()?;
        self.at += 1;
        self.out.push(b':');
        self.value()
    }

    fn value(&mut self) -> Halting<()> {
        match self.next_token()? {
            b'"' => {
                let is_member = self.open.last() == Some(&b'{');
                let ends: fn(&[u8]) -> bool = if is_member { ends_member } else { ends_item };
                let end = self.find_end(ends, usize::MAX)?;
                self.push_string(end);
            }
            bracket @ (b'{' | b'[') => {
                if self.open.len() >= MAX_DEPTH {
                    return Err(Halt::Failed);
                }
                self.open.push(bracket);
                self.out.push(bracket);
                self.at += 1;
            }
            // A number is missing where the recorder had none.
            b',' | b'}' | b']' => self.out.extend_from_slice(b"null"),
            _ => self.bare()?,
        }
        Ok(())
    }

    fn bare(&mut self) -> Halting<()> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|&b| matches!(b, b',' | b'}' | b']' | b'\n')).unwrap_or(rest.len());
        self.reach(self.at + len)?;
        let word = rest[..len].trim_ascii();
        if word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+')) {
            self.out.extend_from_slice(word);
        } else {
            self.out.push(b'"');
            self.out.extend(word.iter().map(|&b| if matches!(b, b'"' | b'\\') { b'\'' } else { b }));
            self.out.push(b'"');
        }
        self.at += len;
        Ok(())
    }

    /// Position of the quote that ends the string whose opening quote is at the position.
    fn find_end(&mut self, ends: impl Fn(&[u8]) -> bool, longest: usize) -> Halting<usize> {
        let bytes = self.bytes;
        let start = self.at + 1;
        let body = &bytes[start..];
        let body = &body[..body.len().min(longest.saturating_add(1))];
        for quote in memchr::memchr_iter(b'"', body).map(|len| start + len) {
            self.reach(quote)?;
            if ends(&bytes[quote + 1..]) {
                return Ok(quote);
            }
        }
        self.reach(start + body.len())?;
        Err(Halt::Failed)
    }

    /// Copies the string up to the quote at `end`, escaping the quotes inside.
    fn push_string(&mut self, end: usize) {
        let body = &self.bytes[self.at + 1..end];
        self.out.push(b'"');
        let mut escaped = false;
        for &byte in body {
            if byte == b'"' && !escaped {
                self.out.push(b'\\');
            }
            self.out.push(byte);
            escaped = byte == b'\\' && !escaped;
        }
        if escaped {
            // A backslash before the closing quote stands for itself.
            self.out.push(b'\\');
        }
        self.out.push(b'"');
        self.at = end + 1;
    }
}

fn follows(rest: &[u8], byte: u8) -> bool {
    skip_space(rest).first() == Some(&byte)
}

/// Whether `rest` can follow the string value of a member.
fn ends_member(rest: &[u8]) -> bool {
    let rest = skip_space(rest);
    match rest.first() {
        Some(b'}') => {
            matches!(skip_space(&rest[1..]).first(), None | Some(b',' | b'}' | b']'))
        }
        Some(b',') => {
            let Some(key) = skip_space(&rest[1..]).strip_prefix(b"\"") else { return false };
            let key = &key[..key.len().min(MAX_KEY)];
            memchr::memchr(b'"', key).is_some_and(|end| follows(&key[end + 1..], b':'))
        }
        _ => false,
    }
}

/// Whether `rest` can follow a string in a list.
fn ends_item(rest: &[u8]) -> bool {
    let rest = skip_space(rest);
    match rest.first() {
        Some(b']') => matches!(skip_space(&rest[1..]).first(), Some(b',' | b'}' | b']')),
        Some(b',') => matches!(
            skip_space(&rest[1..]).first(),
            Some(b'"' | b'[' | b'{' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n')
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Option<(serde_json::Value, &str)> {
        let attempt = rewrite_object(text.as_bytes(), 1);
        Some((serde_json::from_slice(&attempt.outcome.ok()?).unwrap(), &text[attempt.reached..]))
    }

    #[test]
    fn quotes_inside_text_are_kept() {
        let (value, rest) = object(r#"{"name": "load "train" split", "pid": 1}, {"#).unwrap();
        assert_eq!(value["name"], "load \"train\" split");
        assert_eq!(rest, ", {");
        let (value, _) = object(r#"{"name": "x},{"ph":"X"", "ts": 1.5}"#).unwrap();
        assert_eq!(value["name"], "x},{\"ph\":\"X\"");
        let (value, _) = object(r#"{"args": {"msg": ["a"b", "c"], "n": 2 }}"#).unwrap();
        assert_eq!(value["args"]["msg"][0], "a\"b");
    }

    #[test]
    fn backslashes_before_a_closing_quote_are_kept() {
        let (value, _) = object(r#"{"name": "C:\", "pid": 1}"#).unwrap();
        assert_eq!(value["name"], "C:\\");
    }

    #[test]
    fn values_that_are_missing_or_odd_become_null_or_text() {
        let (value, _) = object(r#"{"rank": , "b": @x@}"#).unwrap();
        assert!(value["rank"].is_null());
        assert_eq!(value["b"], "@x@");
    }

    #[test]
    fn an_object_without_end_is_beyond_repair() {
        assert_eq!(object(r#"{"name": "abc"#), None);
        assert_eq!(object(r#"{"name" "abc"}"#), None);
        assert_eq!(object(&"{\"a\":[".repeat(100)), None);
    }

    #[test]
    fn a_member_ends_before_the_next_key() {
        let text = r#""a /"quoted/" value", "host_name": "x""#;
        let attempt = rewrite_member(text.as_bytes());
        let json = attempt.outcome.unwrap();
        assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), "a /\"quoted/\" value");
        assert_eq!(&text[attempt.reached..], r#", "host_name": "x""#);
    }

    #[test]
    fn an_object_reaches_over_so_many_boundaries() {
        let text = br#"{"name": "x},{"ph":"X"", "ts": 1.5}"#;
        assert_eq!(rewrite_object(text, 0), Attempt { outcome: Err(Halt::Crossed), reached: 13 });
        assert!(rewrite_object(text, 1).outcome.is_ok());
    }

    #[test]
    fn brackets_must_match() {
        assert_eq!(object(r#"{"a": [ } }"#), None);
        assert_eq!(object(r#"{"a": 1 ]"#), None);
    }
}
