//! Finds where one event ends and the next begins without parsing what lies before.
//!
//! A boundary is the `{` of `} , { "key" :` with a key that events begin with. In valid JSON the
//! sequence `{ "key" :` cannot be part of a string, because a quote inside a string is escaped.
//! It can be an object nested in an argument; a reader that cut there notices, because the event
//! before the cut does not end.

/// The keys that the recorders and the tools behind them write first.
const FIRST_KEYS: [&[u8]; 12] =
    [b"ph", b"name", b"cat", b"pid", b"tid", b"ts", b"dur", b"args", b"id", b"s", b"bp", b"Ev Idx"];

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Whether the `{` at `at` begins an event and another object ends before it.
fn is_boundary(bytes: &[u8], at: usize) -> bool {
    let before = &bytes[..at];
    let Some(comma) = before.iter().rposition(|&b| !is_space(b)) else { return false };
    if before[comma] != b',' {
        return false;
    }
    let Some(brace) = before[..comma].iter().rposition(|&b| !is_space(b)) else { return false };
    if before[brace] != b'}' {
        return false;
    }
    let Some(quote) = skip_space(bytes, at + 1) else { return false };
    if bytes[quote] != b'"' {
        return false;
    }
    let Some(key) = FIRST_KEYS
        .iter()
        .find(|key| bytes[quote + 1..].starts_with(key) && bytes.get(quote + 1 + key.len()) == Some(&b'"'))
    else {
        return false;
    };
    skip_space(bytes, quote + key.len() + 2).is_some_and(|colon| bytes[colon] == b':')
}

fn skip_space(bytes: &[u8], from: usize) -> Option<usize> {
    bytes.get(from..)?.iter().position(|&b| !is_space(b)).map(|i| from + i)
}

/// The first boundary behind `from`.
pub(crate) fn find(bytes: &[u8], from: usize) -> Option<usize> {
    let tail = bytes.get(from + 1..)?;
    memchr::memchr_iter(b'{', tail).map(|i| from + 1 + i).find(|&at| is_boundary(bytes, at))
}

/// The last boundary.
pub(crate) fn rfind(bytes: &[u8]) -> Option<usize> {
    memchr::memrchr_iter(b'{', bytes).find(|&at| is_boundary(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_where_events_meet() {
        let text = br#"[{"ph": "X", "name": "a},{b"} ,
            { "name" : "{lambda()#1}", "args": {"ph": 1}}, {"ph":"X"}]"#;
        let second = text.windows(8).position(|w| w == b"{ \"name\"").unwrap();
        let third = text.windows(5).rposition(|w| w == b"{\"ph\"").unwrap();
        assert_eq!(find(text, 0), Some(second));
        assert_eq!(find(text, second), Some(third));
        assert_eq!(find(text, third), None);
        assert_eq!(rfind(text), Some(third));
    }

    #[test]
    fn a_cut_key_is_no_boundary() {
        let text = br#"{"ph":"X"},{"ph":"X"},{"nam"#;
        assert_eq!(rfind(text), Some(11));
    }
}
