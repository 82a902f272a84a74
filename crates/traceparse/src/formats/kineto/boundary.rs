//! Finds where one event ends and the next begins without parsing what lies before.
//!
//! An event is taken to begin at the `{` of `, { "key" :` with a key that events begin with; the
//! bytes are cut into chunks only where an object ends before the comma. In valid JSON the sequence
//! `{ "key" :` cannot be part of a string, because a quote inside a string is escaped. It can be an
//! object nested in an argument; a reader that cut there notices, because the event before the cut
//! does not end.
//!
//! Whether a position is such a place depends on a bounded number of bytes around it, so that the
//! answer is the same wherever the content was cut into chunks.

use super::scan::is_space;

/// White space between two tokens of a boundary; with more there is none.
pub(crate) const MAX_SPACE: usize = 128;
/// Bytes behind a position that decide what it is.
pub(crate) const LOOKAHEAD: usize = 1024;
/// Bytes before a position that decide what it is.
pub(crate) const LOOKBACK: usize = 2 * MAX_SPACE + 2;

/// The keys that the recorders and the tools behind them write first.
const FIRST_KEYS: [&[u8]; 12] =
    [b"ph", b"name", b"cat", b"pid", b"tid", b"ts", b"dur", b"args", b"id", b"s", b"bp", b"Ev Idx"];

/// Keys that the recorders write behind the events.
const FOOTER_KEYS: [&[u8]; 9] = [
    b"traceName",
    b"displayTimeUnit",
    b"baseTimeNanoseconds",
    b"schemaVersion",
    b"deviceProperties",
    b"distributedInfo",
    b"INFO",
    b"WARNING",
    b"ERROR",
];

/// `bytes` without the white space at its start, of which only so much is looked at.
pub(crate) fn skip_space(bytes: &[u8]) -> &[u8] {
    let spaces = bytes.iter().take(MAX_SPACE).take_while(|&&b| is_space(b)).count();
    bytes.get(spaces..).unwrap_or_default()
}

/// The last byte of `bytes` that is no white space, and what stands before it.
fn last_token(bytes: &[u8]) -> Option<(&[u8], u8)> {
    let spaces = bytes.iter().rev().take(MAX_SPACE).take_while(|&&b| is_space(b)).count();
    let (&last, before) = bytes.get(..bytes.len() - spaces)?.split_last()?;
    Some((before, last))
}

/// Whether `bytes` begin with one of `keys`, quoted, and a colon.
fn begins_member(bytes: &[u8], keys: &[&[u8]]) -> bool {
    let Some(rest) = skip_space(bytes).strip_prefix(b"\"") else { return false };
    keys.iter().any(|key| {
        rest.strip_prefix(*key)
            .and_then(|rest| rest.strip_prefix(b"\""))
            .is_some_and(|rest| skip_space(rest).first() == Some(&b':'))
    })
}

/// Whether `bytes` begin with `{` and a key that events begin with.
pub(crate) fn begins_event(bytes: &[u8]) -> bool {
    bytes.strip_prefix(b"{").is_some_and(|rest| begins_member(rest, &FIRST_KEYS))
}

/// If the `{` at `at` begins an event: what stands before the comma before it.
fn before_comma(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let (before, from) = bytes.split_at(at);
    let (before, last) = last_token(before)?;
    (last == b',' && begins_event(from)).then_some(before)
}

/// Whether the `]` at `at` closes the array of events: metadata follows.
fn is_closing(bytes: &[u8], at: usize) -> bool {
    let rest = skip_space(&bytes[at + 1..]);
    rest.strip_prefix(b",").is_some_and(|rest| begins_member(rest, &FOOTER_KEYS))
}

/// A place where reading can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The `{` of an event.
    Event(usize),
    /// The `]` behind the last event.
    Closing(usize),
}

/// The first place behind the start of `bytes` where reading can go on.
pub(crate) fn find(bytes: &[u8]) -> Option<Place> {
    find_between(bytes, 0, bytes.len())
}

/// The first place behind `from` and before `end` where reading can go on.
pub(crate) fn find_between(bytes: &[u8], from: usize, end: usize) -> Option<Place> {
    let tail = bytes.get(from + 1..end)?;
    memchr::memchr2_iter(b'{', b']', tail).map(|i| from + 1 + i).find_map(|at| {
        if bytes[at] == b'{' {
            before_comma(bytes, at).map(|_| Place::Event(at))
        } else {
            is_closing(bytes, at).then_some(Place::Closing(at))
        }
    })
}

/// The last place where an object ends and an event begins.
pub(crate) fn rfind(bytes: &[u8]) -> Option<usize> {
    memchr::memrchr_iter(b'{', bytes).find(|&at| {
        let before = before_comma(bytes, at).and_then(last_token);
        matches!(before, Some((_, b'}')))
    })
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
        assert_eq!(find(text), Some(Place::Event(second)));
        assert_eq!(find_between(text, second, text.len()), Some(Place::Event(third)));
        assert_eq!(find_between(text, third, text.len()), None);
        assert_eq!(rfind(text), Some(third));
    }

    #[test]
    fn the_end_of_the_events_is_known_by_what_follows() {
        let text = br#"{"ph": "X", "args": {"dims": [1], "ts": 2} ] , "traceName": "x"}"#;
        let bracket = text.windows(3).position(|w| w == b"] ,").unwrap();
        assert_eq!(find(text), Some(Place::Closing(bracket)));
    }

    #[test]
    fn chunks_are_cut_behind_objects_only() {
        let text = br#"{"name": "a, {"name": "b"}, {"ph": "X"}"#;
        assert_eq!(find(text), Some(Place::Event(13)));
        assert_eq!(rfind(text), Some(28));
        assert_eq!(rfind(&text[..28]), None);
    }

    #[test]
    fn a_cut_key_is_no_boundary() {
        let text = br#"{"ph":"X"},{"ph":"X"},{"nam"#;
        assert_eq!(rfind(text), Some(11));
    }

    #[test]
    fn the_answer_depends_on_bounded_context() {
        let space = |n: usize| [b"{},".as_slice(), &vec![b' '; n], b"{\"ph\":1}"].concat();
        assert!(rfind(&space(MAX_SPACE)).is_some());
        assert_eq!(rfind(&space(MAX_SPACE + 1)), None);
    }
}
