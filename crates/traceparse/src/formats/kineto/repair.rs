//! Rewrites damaged JSON where the intent is clear, so that the scanner can read it.
//!
//! Recorders write names and keyword arguments without escaping anything. A quote ends a text only where
//! something follows that can follow a text there; every other quote belongs to it. Of several such ends the
//! first is taken with which the rest can be read, too.

use super::boundary::{self, Place, skip_space};
use super::scan::is_space;

/// Deepest nesting that is repaired.
const MAX_DEPTH: usize = 64;
/// Longest key.
const MAX_KEY: usize = 256;
/// Ends of texts that are tried anew before an object is given up.
const MAX_TRIES: usize = 64;

/// The keys of events, as the Trace Event Format has them.
const EVENT_KEYS: [&[u8]; 21] = [
    b"ph",
    b"name",
    b"cat",
    b"pid",
    b"tid",
    b"ts",
    b"dur",
    b"args",
    b"id",
    b"s",
    b"bp",
    b"tts",
    b"tdur",
    b"id2",
    b"bind_id",
    b"flow_in",
    b"flow_out",
    b"sf",
    b"esf",
    b"cname",
    b"scope",
];

/// Why something was not rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It goes on behind more event boundaries than allowed.
    Crossed,
    /// It is beyond repair, or the bytes end before it does.
    Failed,
}

/// What was rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// What the scanner can read.
    pub(crate) json: Vec<u8>,
    /// Where it ends in what it was made from.
    pub(crate) end: usize,
    /// Whether there was a quote that was not escaped: every backslash stands for itself then.
    pub(crate) is_unescaped: bool,
}

/// An attempt to rewrite something, and how far it went.
///
/// Nothing behind `reached` plus [`boundary::LOOKAHEAD`] has a part in the outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) outcome: Halting<Rewritten>,
    pub(crate) reached: usize,
}

/// Rewrites the event at the start of `bytes`, inside of which so many event boundaries may lie, to something
/// that `accepts` takes for one.
pub(crate) fn rewrite_event(
    bytes: &[u8],
    boundaries: usize,
    mut accepts: impl FnMut(&[u8]) -> bool,
) -> Attempt {
    if bytes.first() != Some(&b'{') {
        return Attempt { outcome: Err(Halt::Failed), reached: 0 };
    }
    rewrite(bytes, &State { boundaries: Some(boundaries), ..State::default() }, &mut accepts)
}

/// Rewrites the value of an object's member at the start of `bytes`.
pub(crate) fn rewrite_member(bytes: &[u8]) -> Attempt {
    rewrite(bytes, &State { open: vec![b'{'], ..State::default() }, &mut |_| true)
}

fn rewrite(bytes: &[u8], start: &State, accepts: &mut dyn FnMut(&[u8]) -> bool) -> Attempt {
    let attempt = Rewriter::new(bytes, start.clone(), false).run(accepts);
    match attempt.outcome {
        Ok(Rewritten { is_unescaped: true, .. }) => Rewriter::new(bytes, start.clone(), true).run(accepts),
        _ => attempt,
    }
}

type Halting<T> = std::result::Result<T, Halt>;

/// Where a rewriter stands.
#[derive(Debug, Clone, Default)]
struct State {
    at: usize,
    /// Length of what was written.
    written: usize,
    /// Opening brackets of the containers around the position.
    open: Vec<u8>,
    /// Boundaries that may still be crossed; `None` for any number, and for no event.
    boundaries: Option<usize>,
    /// Boundaries are counted up to here.
    counted: usize,
    /// The keys that the event has so far: bits by their place in [`EVENT_KEYS`].
    keys: u32,
    has_bare_quote: bool,
}

/// A text whose end was chosen.
struct Choice {
    /// At its opening quote.
    state: State,
    end: usize,
    rank: u8,
}

struct Rewriter<'a> {
    bytes: &'a [u8],
    state: State,
    out: Vec<u8>,
    choices: Vec<Choice>,
    tries: usize,
    /// Whether every backslash stands for itself.
    is_unescaped: bool,
    /// The position furthest on that was looked at.
    reached: usize,
}

impl<'a> Rewriter<'a> {
    fn new(bytes: &'a [u8], state: State, is_unescaped: bool) -> Self {
        // Where other events may be swallowed, nothing is tried.
        let tries = if state.boundaries.is_none_or(|boundaries| boundaries == 0) { MAX_TRIES } else { 0 };
        let (out, choices) = (Vec::new(), Vec::new());
        Self { bytes, state, out, choices, tries, is_unescaped, reached: 0 }
    }

    fn run(mut self, accepts: &mut dyn FnMut(&[u8]) -> bool) -> Attempt {
        let depth = self.state.open.len();
        let is_event = self.state.boundaries.is_some();
        let mut halt = Halt::Failed;
        // Accepted, but nothing follows that can follow an event.
        let mut loose = None;
        let mut result = self.value().and_then(|()| self.run_until(depth));
        loop {
            match result {
                Ok(()) if accepts(&self.out) => {
                    let found = Rewritten {
                        json: self.out.clone(),
                        end: self.state.at,
                        is_unescaped: self.state.has_bare_quote,
                    };
                    if !is_event || may_follow_event(&self.bytes[self.state.at..]) {
                        loose = Some(found);
                        break;
                    }
                    loose.get_or_insert(found);
                }
                Err(Halt::Crossed) => halt = Halt::Crossed,
                Ok(()) | Err(Halt::Failed) => {}
            }
            let Some(Choice { state, end, rank }) = self.choices.pop().filter(|_| self.tries > 0) else {
                break;
            };
            self.tries -= 1;
            self.out.truncate(state.written);
            self.state = state;
            result = self.text(end, rank).and_then(|()| self.run_until(depth));
        }
        Attempt { outcome: loose.ok_or(halt), reached: self.reached.max(self.state.at) }
    }

    /// Goes on to `to`, if no more boundaries lie before it than allowed.
    fn reach(&mut self, to: usize) -> Halting<()> {
        let Some(left) = &mut self.state.boundaries else {
            self.reached = self.reached.max(to);
            return Ok(());
        };
        let end = self.bytes.len().min(to + 1);
        while let Some(place) = boundary::find_between(self.bytes, self.state.counted, end) {
            let (Place::Event(at) | Place::Closing(at)) = place;
            self.state.counted = at;
            if *left == 0 || matches!(place, Place::Closing(_)) {
                self.reached = self.reached.max(at);
                return Err(Halt::Crossed);
            }
            *left -= 1;
        }
        self.state.counted = self.state.counted.max(to);
        self.reached = self.reached.max(to);
        Ok(())
    }

    /// Rewrites until only `depth` containers are open.
    fn run_until(&mut self, depth: usize) -> Halting<()> {
        while self.state.open.len() > depth {
            let container = self.state.open.last().copied();
            match (container, self.next_token()?) {
                (_, b',') => self.state.at += 1,
                (Some(b'{'), b'}') | (Some(b'['), b']') => self.close(),
                (Some(b'{'), first) => self.member(first)?,
                (_, b'}') => return Err(Halt::Failed),
                _ => {
                    self.separate();
                    self.value()?;
                }
            }
        }
        Ok(())
    }

    fn next_token(&mut self) -> Halting<u8> {
        let spaces = self.bytes[self.state.at..].iter().take_while(|&&b| is_space(b)).count();
        self.state.at += spaces;
        self.reach(self.state.at)?;
        self.bytes.get(self.state.at).copied().ok_or(Halt::Failed)
    }

    fn separate(&mut self) {
        if !matches!(self.out.last(), None | Some(b'[' | b'{')) {
            self.out.push(b',');
        }
    }

    fn close(&mut self) {
        self.state.open.pop();
        self.out.push(self.bytes[self.state.at]);
        self.state.at += 1;
    }

    /// A key, whose first quote may be missing, and its value.
    fn member(&mut self, first: u8) -> Halting<()> {
        self.separate();
        let boundaries = self.state.boundaries;
        let start = match first {
            b'"' => self.state.at + 1,
            b'a'..=b'z' | b'A'..=b'Z' => self.state.at,
            _ => return Err(Halt::Failed),
        };
        let key = &self.bytes[start..];
        let key = &key[..key.len().min(MAX_KEY + 1)];
        let mut quotes = memchr::memchr_iter(b'"', key);
        let Some(len) = quotes.find(|&len| follows(&self.bytes[start + len + 1..], b':')) else {
            self.reached = self.reached.max(start + key.len());
            return Err(Halt::Failed);
        };
        self.reach(start + len)?;
        if self.state.boundaries != boundaries {
            // A text may hold anything, a key does not.
            return Err(Halt::Failed);
        }
        if self.is_at_event()
            && let Some(number) = EVENT_KEYS.iter().position(|known| *known == &key[..len])
        {
            if self.state.keys & 1 << number != 0 {
                return Err(Halt::Failed);
            }
            self.state.keys |= 1 << number;
        }
        self.push_string(start, start + len);
        self.next_token()?;
        self.state.at += 1;
        self.out.push(b':');
        self.value()
    }

    /// Whether the innermost container is the event itself.
    fn is_at_event(&self) -> bool {
        self.state.boundaries.is_some() && self.state.open.len() == 1
    }

    fn value(&mut self) -> Halting<()> {
        match self.next_token()? {
            b'"' => self.text(self.state.at, 0)?,
            bracket @ (b'{' | b'[') => {
                if self.state.open.len() >= MAX_DEPTH {
                    return Err(Halt::Failed);
                }
                self.state.open.push(bracket);
                self.out.push(bracket);
                self.state.at += 1;
            }
            // A number is missing where the recorder had none.
            b',' | b'}' | b']' => self.out.extend_from_slice(b"null"),
            _ => self.bare()?,
        }
        Ok(())
    }

    fn bare(&mut self) -> Halting<()> {
        let rest = &self.bytes[self.state.at..];
        let len = rest.iter().position(|&b| matches!(b, b',' | b'}' | b']' | b'\n')).unwrap_or(rest.len());
        self.reach(self.state.at + len)?;
        let word = rest[..len].trim_ascii();
        if word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+')) {
            self.out.extend_from_slice(word);
        } else {
            self.out.push(b'"');
            self.out.extend(word.iter().map(|&b| if matches!(b, b'"' | b'\\') { b'\'' } else { b }));
            self.out.push(b'"');
        }
        self.state.at += len;
        Ok(())
    }

    /// Rewrites the text whose opening quote is at the position, up to the first end behind `from` of this rank,
    /// or else of the next.
    fn text(&mut self, from: usize, rank: u8) -> Halting<()> {
        let opening = State { written: self.out.len(), ..self.state.clone() };
        let (bytes, start) = (self.bytes, opening.at + 1);
        let mut halt = Halt::Failed;
        for (rank, from) in [(rank, from), (1, opening.at)].into_iter().take(2 - usize::from(rank)) {
            let ends = memchr::memchr_iter(b'"', &bytes[from + 1..]).map(|at| from + 1 + at);
            for end in ends.chain([bytes.len()]) {
                if self.reach(end).is_err() {
                    halt = Halt::Crossed;
                    break;
                }
                if end < bytes.len() && self.rank_of(&bytes[start..end], &bytes[end + 1..]) == Some(rank) {
                    self.choices.push(Choice { state: opening, end, rank });
                    self.push_string(start, end);
                    return Ok(());
                }
            }
            self.state = opening.clone();
        }
        Err(halt)
    }

    /// How well `rest` can follow `text`: 0 where it can, 1 where it seems not to, none where it cannot.
    fn rank_of(&self, text: &[u8], rest: &[u8]) -> Option<u8> {
        let rest = skip_space(rest);
        let (&first, behind) = rest.split_first()?;
        let behind = skip_space(behind);
        match (first, self.state.open.last()) {
            (b'}', Some(b'{')) if self.is_at_event() => Some((!may_follow_event(behind)).into()),
            (b'}', Some(b'{')) => {
                matches!(behind.first(), None | Some(b',' | b'}' | b']')).then(|| is_open(text).into())
            }
            (b',', Some(b'{')) => {
                let key = key_at(behind)?;
                let is_unlikely = if self.is_at_event() { !EVENT_KEYS.contains(&key) } else { is_open(text) };
                Some(is_unlikely.into())
            }
            (b']', Some(b'[')) => {
                matches!(behind.first(), Some(b',' | b'}' | b']')).then(|| is_open(text).into())
            }
            (b',', Some(b'[')) => {
                let begins_item = |byte: &u8| b"\"[{-tfn".contains(byte) || byte.is_ascii_digit();
                behind.first().is_some_and(begins_item).then(|| is_open(text).into())
            }
            _ => None,
        }
    }

    /// Copies what stands between two quotes, and goes on behind the second.
    fn push_string(&mut self, start: usize, end: usize) {
        let body = &self.bytes[start..end];
        let is_unescaped = is_unescaped(body);
        self.state.has_bare_quote |= is_unescaped;
        self.out.push(b'"');
        for &byte in body {
            if matches!(byte, b'"' | b'\\') && (self.is_unescaped || is_unescaped) {
                self.out.push(b'\\');
            }
            self.out.push(byte);
        }
        self.out.push(b'"');
        self.state.at = end + 1;
    }
}

/// Whether a quote in `text`, or the one behind it, is not escaped as it would have to be.
fn is_unescaped(text: &[u8]) -> bool {
    let mut is_escaped = false;
    for &byte in text {
        if byte == b'"' && !is_escaped {
            return true;
        }
        is_escaped = byte == b'\\' && !is_escaped;
    }
    is_escaped
}

/// Whether `text` begins with a bracket and has not closed as many as it opened.
fn is_open(text: &[u8]) -> bool {
    let count = |brackets: &[u8]| text.iter().filter(|&byte| brackets.contains(byte)).count();
    matches!(text.first(), Some(b'{' | b'[')) && count(b"{[") > count(b"}]")
}

fn follows(rest: &[u8], byte: u8) -> bool {
    skip_space(rest).first() == Some(&byte)
}

/// The key of the member at the start of `bytes`, if there is one.
fn key_at(bytes: &[u8]) -> Option<&[u8]> {
    let key = bytes.strip_prefix(b"\"")?;
    let key = &key[..memchr::memchr(b'"', &key[..key.len().min(MAX_KEY)])?];
    follows(&bytes[key.len() + 2..], b':').then_some(key)
}

/// Whether `rest` can follow an event: nothing, another one or the end of all.
fn may_follow_event(rest: &[u8]) -> bool {
    match skip_space(rest) {
        [b',', rest @ ..] => match skip_space(rest) {
            [b'{', rest @ ..] => key_at(skip_space(rest)).is_some(),
            rest => matches!(rest.first(), None | Some(b']')),
        },
        rest => matches!(rest.first(), None | Some(b']')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Option<(serde_json::Value, &str)> {
        let found = rewrite_event(text.as_bytes(), 1, |_| true).outcome.ok()?;
        Some((serde_json::from_slice(&found.json).unwrap(), &text[found.end..]))
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
        let found = attempt.outcome.unwrap();
        assert_eq!(serde_json::from_slice::<String>(&found.json).unwrap(), "a /\"quoted/\" value");
        assert_eq!(&text[found.end..], r#", "host_name": "x""#);
    }

    #[test]
    fn an_object_reaches_over_so_many_boundaries() {
        let text = br#"{"name": "x},{"ph":"X"", "ts": 1.5}"#;
        assert_eq!(rewrite_event(text, 0, |_| true), Attempt { outcome: Err(Halt::Crossed), reached: 13 });
        assert!(rewrite_event(text, 1, |_| true).outcome.is_ok());
    }

    #[test]
    fn brackets_must_match() {
        assert_eq!(object(r#"{"a": [ } }"#), None);
        assert_eq!(object(r#"{"a": 1 ]"#), None);
    }

    /// The value of `key`, and what follows the event; of ends that an event has without `ts` none counts.
    fn value_of(key: &str, text: &str) -> Option<(String, String)> {
        let accepts =
            |json: &[u8]| serde_json::from_slice::<serde_json::Value>(json).unwrap()["ts"].is_number();
        let found = rewrite_event(text.as_bytes(), 0, accepts).outcome.ok()?;
        let event: serde_json::Value = serde_json::from_slice(&found.json).unwrap();
        Some((event[key].as_str()?.to_owned(), text[found.end..].to_owned()))
    }

    #[test]
    fn a_text_ends_where_an_event_goes_on() {
        for name in [
            r#"{"device": "cpu", "dtype": "float32"}(12): run"#,
            r#"a", "b": "c"#,
            r#"a"}, {"b"#,
            r#"a"}"#,
            r#"{"name": "x", "ts": 1}"#,
            r#"", ""#,
            r#"C:\"x\"#,
            r#"C:\n"\\"#,
        ] {
            for text in [
                format!(r#"{{"ph": "X", "name": "{name}", "pid": 1, "ts": 2}}, {{"ph": "X"}}"#),
                format!(r#"{{"ph": "X", "cat": "c", "ts": 2, "name": "{name}"}}, {{"ph": "X"}}"#),
                format!(
                    r#"{{"name": "{name}", "args": {{"key "" : "quo"te", "x": 1}}, "ts": 2}}, {{"ph": "X"}}"#
                ),
            ] {
                let expected = Some((name.to_owned(), r#", {"ph": "X"}"#.to_owned()));
                assert_eq!(value_of("name", &text), expected, "{text}");
            }
        }
    }

    #[test]
    fn a_quote_before_a_key_may_be_missing() {
        let (value, _) = object(r#"{"ts": 60.5, tid": 0, "pid": "CUDA functions"}"#).unwrap();
        assert_eq!((&value["tid"], &value["pid"]), (&0.into(), &"CUDA functions".into()));
    }
}
