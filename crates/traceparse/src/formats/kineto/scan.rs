//! Byte-level scanning of JSON: finds where tokens end without interpreting them.
//!
//! The scanner accepts more than JSON does (bare `nan`, raw control characters, trailing commas):
//! what interprets a token counts its repairs.

/// Why scanning stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Stop {
    /// The bytes end inside a value.
    Incomplete,
    /// The bytes are no JSON.
    Syntax,
}

/// The kind of a scanned value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(usize)] // as large as a pointer: a `Raw` is copied in the very words in which it was written
pub(crate) enum Kind {
    /// No value.
    #[default]
    Missing,
    /// A number or a bare word such as `true`, `null` or `nan`.
    Bare,
    /// A string; the bytes are those between the quotes.
    Text,
    /// A string with a backslash in it.
    EscapedText,
    /// An array or object; the bytes include the brackets.
    Nested,
}

/// A scanned value: its kind and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Raw<'a> {
    pub(crate) kind: Kind,
    pub(crate) bytes: &'a [u8],
}

impl Raw<'_> {
    /// Whether there is no value, or an explicit null.
    pub(crate) fn is_null(&self) -> bool {
        match self.kind {
            Kind::Missing => true,
            Kind::Bare => self.bytes == b"null",
            _ => false,
        }
    }
}

/// A position in a buffer of JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

/// Whether `byte` is white space between tokens.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Marks the zero bytes of `word`; exact up to and including the lowest one.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Marks the bytes of `word` that are no digits, points or minus signs.
#[inline]
fn non_numeric(word: u64) -> u64 {
    let low = word & !HIGHS;
    let is_below = !(low + ONES * (0x80 - b'-' as u64));
    let is_above = low + ONES * (0x7f - b'9' as u64);
    // The only other character among them.
    let is_slash = !((low ^ (ONES * b'/' as u64)) + ONES * 0x7f);
    (word | is_below | is_above | is_slash) & HIGHS
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let chunk: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(chunk))
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The byte at the position.
    #[inline]
    pub(crate) fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::Incomplete)
    }

    /// Moves over white space and returns the byte behind it.
    #[inline]
    pub(crate) fn next_token(&mut self) -> Result<u8, Stop> {
        let byte = self.peek()?;
        if byte > b' ' { Ok(byte) } else { self.next_behind_space() }
    }

    #[inline]
    fn next_behind_space(&mut self) -> Result<u8, Stop> {
        loop {
            let byte = self.peek()?;
            if !is_space(byte) {
                return Ok(byte);
            }
            self.at += 1;
            // Indentation: eight blanks at a time.
            while let Some(word) = word_at(self.bytes, self.at) {
                let other = word ^ (ONES * b' ' as u64);
                if other == 0 {
                    self.at += 8;
                } else {
                    self.at += (other.trailing_zeros() / 8) as usize;
                    break;
                }
            }
        }
    }

    /// Scans a string whose opening quote is at the position; returns the bytes between the quotes.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Raw<'a>, Stop> {
        let start = self.at + 1;
        let mut at = start;
        let mut kind = Kind::Text;
        loop {
            at = find_quote_or_backslash(self.bytes, at).ok_or(Stop::Incomplete)?;
            if self.bytes[at] == b'"' {
                self.at = at + 1;
                return Ok(Raw { kind, bytes: &self.bytes[start..at] });
            }
            kind = Kind::EscapedText;
            at += 2;
        }
    }

    /// Scans any value.
    #[inline(always)] // its result is large, and to hand it over costs as much as most values
    pub(crate) fn value(&mut self) -> Result<Raw<'a>, Stop> {
        match self.next_token()? {
            b'"' => self.string(),
            b'[' | b'{' => self.nested(),
            _ => self.bare(),
        }
    }

    /// Scans a number or bare word.
    #[inline]
    fn bare(&mut self) -> Result<Raw<'a>, Stop> {
        let start = self.at;
        loop {
            // Numbers: eight characters at a time.
            while let Some(word) = word_at(self.bytes, self.at) {
                let others = non_numeric(word);
                self.at += (others.trailing_zeros() / 8) as usize;
                if others != 0 {
                    break;
                }
            }
            match self.peek()? {
                b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'-' | b'+' => self.at += 1,
                _ if self.at == start => return Err(Stop::Syntax),
                _ => return Ok(Raw { kind: Kind::Bare, bytes: &self.bytes[start..self.at] }),
            }
        }
    }

    /// Scans an array or object by its brackets.
    #[inline(never)]
    fn nested(&mut self) -> Result<Raw<'a>, Stop> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            self.at = find_structure(self.bytes, self.at).ok_or(Stop::Incomplete)?;
            match self.bytes[self.at] {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'{' => depth += 1,
                _ => depth -= 1,
            }
            self.at += 1;
            if depth == 0 {
                return Ok(Raw { kind: Kind::Nested, bytes: &self.bytes[start..self.at] });
            }
        }
    }
}

/// Position of the next `"` or `\` at or behind `at`.
#[inline]
fn find_quote_or_backslash(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(word) = word_at(bytes, at) {
        let hits = zero_bytes(word ^ (ONES * b'"' as u64)) | zero_bytes(word ^ (ONES * b'\\' as u64));
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    let tail = bytes.get(at..)?;
    tail.iter().position(|&b| b == b'"' || b == b'\\').map(|i| at + i)
}

/// Position of the next quote or bracket at or behind `at`.
#[inline]
fn find_structure(bytes: &[u8], mut at: usize) -> Option<usize> {
    while let Some(word) = word_at(bytes, at) {
        // This bit is all that tells `[` from `{` and `]` from `}`.
        let folded = word | (ONES * 0x20);
        let hits = zero_bytes(folded ^ (ONES * b'{' as u64))
            | zero_bytes(folded ^ (ONES * b'}' as u64))
            | zero_bytes(word ^ (ONES * b'"' as u64));
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    let tail = bytes.get(at..)?;
    tail.iter().position(|&b| matches!(b, b'"' | b'[' | b']' | b'{' | b'}')).map(|i| at + i)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<(Kind, &str, usize), Stop> {
        let mut cursor = Cursor::new(text.as_bytes(), 0);
        let raw = cursor.value()?;
        Ok((raw.kind, std::str::from_utf8(raw.bytes).unwrap(), cursor.at))
    }

    #[test]
    fn values_end_where_json_says() {
        assert_eq!(value(" 12.5,"), Ok((Kind::Bare, "12.5", 5)));
        assert_eq!(value("\n        \"a long enough text\","), Ok((Kind::Text, "a long enough text", 29)));
        assert_eq!(value(r#""a\"b","#), Ok((Kind::EscapedText, r#"a\"b"#, 6)));
        assert_eq!(value(r#"[[1, "]"], {}]x"#), Ok((Kind::Nested, r#"[[1, "]"], {}]"#, 14)));
        assert_eq!(value("nan}"), Ok((Kind::Bare, "nan", 3)));
        for end in (0..=0x7f_u8).filter(|byte| !b"+-.".contains(byte) && !byte.is_ascii_alphanumeric()) {
            let text = format!("1419116104994.671{}12345678", char::from(end));
            assert_eq!(value(&text), Ok((Kind::Bare, "1419116104994.671", 17)), "{text}");
        }
    }

    #[test]
    fn an_end_inside_a_value_is_incomplete() {
        for text in ["", "  ", "12", "\"abc", "\"abc\\", "[1, [2]", "{\"a\": \""] {
            assert_eq!(value(text), Err(Stop::Incomplete), "{text:?}");
        }
        assert_eq!(value(","), Err(Stop::Syntax));
        assert_eq!(value("]"), Err(Stop::Syntax));
    }

    #[test]
    fn deep_nesting_needs_no_stack() {
        let text = "[".repeat(1_000_000) + &"]".repeat(1_000_000) + ",";
        assert_eq!(value(&text).unwrap().2, 2_000_000);
    }
}
