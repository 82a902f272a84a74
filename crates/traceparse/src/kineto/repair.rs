//! Rewrites damaged JSON into valid JSON where the intent is clear.
//!
//! Recorders write names and keyword arguments without escaping quotes. A quote ends a string only
//! where something follows that can follow a string there; every other quote belongs to the text.

/// Deepest nesting that is repaired.
const MAX_DEPTH: usize = 64;
/// Longest key.
const MAX_KEY: usize = 256;

/// Rewrites the object at the start of `bytes`; returns valid JSON and the bytes it was made from.
///
/// `None` if the object does not end in `bytes` or is beyond repair.
pub(crate) fn rewrite_object(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut rewriter = Rewriter { bytes, at: 0, out: Vec::with_capacity(bytes.len() + 16), open: Vec::new() };
    rewriter.run()?;
    Some((rewriter.out, rewriter.at))
}

/// Rewrites the value of an object's member at the start of `bytes`, in the same way.
pub(crate) fn rewrite_member(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut rewriter = Rewriter { bytes, at: 0, out: Vec::with_capacity(64), open: vec![b'{'] };
    rewriter.value()?;
    if rewriter.open.len() > 1 {
        rewriter.run_until(1)?;
    }
    Some((rewriter.out, rewriter.at))
}

struct Rewriter<'a> {
    bytes: &'a [u8],
    at: usize,
    out: Vec<u8>,
    /// Opening brackets of the containers around the position.
    open: Vec<u8>,
}

impl Rewriter<'_> {
    fn run(&mut self) -> Option<()> {
        if *self.bytes.first()? != b'{' {
            return None;
        }
        self.value()?;
        self.run_until(0)
    }

    /// Rewrites until only `depth` containers are open.
    fn run_until(&mut self, depth: usize) -> Option<()> {
        while self.open.len() > depth {
            let container = *self.open.last()?;
            match self.next_token()? {
                b',' => self.at += 1,
                b'}' if container == b'{' => self.close(b'}'),
                b']' if container == b'[' => self.close(b']'),
                b'"' if container == b'{' => self.member()?,
                _ if container == b'[' => {
                    self.separate();
                    self.value()?;
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn next_token(&mut self) -> Option<u8> {
        while self.bytes.get(self.at)?.is_ascii_whitespace() {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn separate(&mut self) {
        if !matches!(self.out.last(), None | Some(b'[' | b'{')) {
            self.out.push(b',');
        }
    }

    fn close(&mut self, bracket: u8) {
        self.open.pop();
        self.out.push(bracket);
        self.at += 1;
    }

    fn member(&mut self) -> Option<()> {
        self.separate();
        let end = self.find_end(|rest| follows(rest, b':'), MAX_KEY)?;
        self.push_string(end);
        self.next_token();
        self.at += 1;
        self.out.push(b':');
        self.value()
    }

    fn value(&mut self) -> Option<()> {
        match self.next_token()? {
            b'"' => {
                let ends: fn(&[u8]) -> bool =
                    if *self.open.last()? == b'{' { ends_member } else { ends_item };
                let end = self.find_end(ends, usize::MAX)?;
                self.push_string(end);
            }
            bracket @ (b'{' | b'[') => {
                if self.open.len() >= MAX_DEPTH {
                    return None;
                }
                self.open.push(bracket);
                self.out.push(bracket);
                self.at += 1;
            }
            // A number is missing where the recorder had none.
            b',' | b'}' | b']' => self.out.extend_from_slice(b"null"),
            _ => self.bare(),
        }
        Some(())
    }

    fn bare(&mut self) {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|&b| matches!(b, b',' | b'}' | b']' | b'\n')).unwrap_or(rest.len());
        let word = rest[..len].trim_ascii();
        if word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+')) {
            self.out.extend_from_slice(word);
        } else {
            self.out.push(b'"');
            self.out.extend(word.iter().map(|&b| if matches!(b, b'"' | b'\\') { b'\'' } else { b }));
            self.out.push(b'"');
        }
        self.at += len;
    }

    /// Position of the quote that ends the string whose opening quote is at the position.
    fn find_end(&self, ends: impl Fn(&[u8]) -> bool, longest: usize) -> Option<usize> {
        let start = self.at + 1;
        memchr::memchr_iter(b'"', self.bytes.get(start..)?)
            .take_while(|&len| len <= longest)
            .map(|len| start + len)
            .find(|&quote| ends(&self.bytes[quote + 1..]))
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

fn skip_space(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_start()
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
        let (json, used) = rewrite_object(text.as_bytes())?;
        Some((serde_json::from_slice(&json).unwrap(), &text[used..]))
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
        let (json, used) = rewrite_member(text.as_bytes()).unwrap();
        assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), "a /\"quoted/\" value");
        assert_eq!(&text[used..], r#", "host_name": "x""#);
    }
}
