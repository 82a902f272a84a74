//! Reads what stands around the events: the top-level keys and values of the file.

use serde_json::{Map, Value};

use super::boundary;
use super::repair;
use super::scan::{Cursor, Kind, Raw, Stop};
use super::text;
use crate::stats::{Code, Stats};

/// Nesting up to which a metadata value is parsed; `serde_json` recurses on it.
const MAX_VALUE_BYTES: usize = 64 << 20;

/// What the outline found behind the last byte it consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The first element of an array of events, at this position.
    Events(usize),
    /// Nothing yet: everything from this position on is needed again, with more behind it.
    More(usize),
}

/// Where in the document the reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first byte of a document.
    Start,
    /// Inside the top-level object, between members.
    Members,
    /// Behind the end of a document.
    End,
}

/// The top level of the file.
#[derive(Debug)]
pub(crate) struct Outline {
    state: State,
    /// Whether the events being read are not inside an object.
    is_bare: bool,
    /// Number of arrays of events so far.
    pub(crate) arrays: u64,
    /// Everything beside the events.
    pub(crate) properties: Map<String, Value>,
}

impl Default for Outline {
    fn default() -> Self {
        Self { state: State::Start, is_bare: false, arrays: 0, properties: Map::new() }
    }
}

impl Outline {
    /// Goes on behind the `]` of an array of events.
    pub(crate) fn close_events(&mut self) {
        self.state = if self.is_bare { State::End } else { State::Members };
    }

    /// Whether the top-level object has been closed, or never was opened.
    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::End
    }

    /// Consumes members from `bytes` on until events begin or bytes run out.
    pub(crate) fn advance(
        &mut self,
        bytes: &[u8],
        start: usize,
        offset: u64,
        is_last: bool,
        stats: &mut Stats,
    ) -> Next {
        let mut cursor = Cursor::new(bytes, start);
        loop {
            let Ok(token) = cursor.next_token() else { return Next::More(bytes.len()) };
            let at = cursor.at;
            let here = Some(offset + at as u64);
            match (self.state, token) {
                (State::Start, b'{') | (State::End, b'{') => {
                    if self.state == State::End {
                        stats.note(Code::ConcatenatedDocuments, here);
                    }
                    self.state = State::Members;
                    self.is_bare = false;
                    cursor.at += 1;
                }
                (State::Start, b'[') => {
                    stats.note(Code::BareArray, here);
                    self.is_bare = true;
                    return self.enter_events(&cursor, stats, offset);
                }
                (State::Members, b'}') => {
                    self.state = State::End;
                    cursor.at += 1;
                }
                (State::Members, b',') => cursor.at += 1,
                (State::Members, b'"') => match self.member(&mut cursor, offset, is_last, stats) {
                    Ok(true) => return self.enter_events(&cursor, stats, offset),
                    Ok(false) => {}
                    Err(Stop::Incomplete) if !is_last => return Next::More(at),
                    Err(Stop::Incomplete) => {
                        stats.note(Code::Truncated, here);
                        return Next::More(bytes.len());
                    }
                    Err(Stop::Syntax) => return self.resynchronise(&cursor, at, offset, is_last, stats),
                },
                _ => return self.resynchronise(&cursor, at, offset, is_last, stats),
            }
        }
    }

    fn enter_events(&mut self, cursor: &Cursor<'_>, stats: &mut Stats, offset: u64) -> Next {
        if self.arrays > 0 {
            stats.note(Code::RepeatedEvents, Some(offset + cursor.at as u64));
        }
        self.arrays += 1;
        Next::Events(cursor.at + 1)
    }

    /// Reads one member; true if it is an array of events, whose `[` is then at the cursor.
    fn member(
        &mut self,
        cursor: &mut Cursor<'_>,
        offset: u64,
        is_last: bool,
        stats: &mut Stats,
    ) -> Result<bool, Stop> {
        let key = cursor.string()?;
        if cursor.next_token()? != b':' {
            return Err(Stop::Syntax);
        }
        cursor.at += 1;
        let first = cursor.next_token()?;
        if key.bytes == b"traceEvents" && first == b'[' {
            return Ok(true);
        }
        let start = cursor.at;
        let here = Some(offset + start as u64);
        let scanned = cursor.value().and_then(|raw| {
            // A text whose quotes are not escaped seems to end early.
            match cursor.next_token()? {
                b',' | b'}' => Ok(raw),
                _ => Err(Stop::Syntax),
            }
        });
        let value = match scanned {
            Ok(raw) => self.interpret(raw, here, stats),
            Err(Stop::Incomplete) if !is_last => return Err(Stop::Incomplete),
            Err(_) => {
                let (json, used) = repair::rewrite_member(&cursor.bytes[start..]).ok_or(Stop::Syntax)?;
                cursor.at = start + used;
                stats.note(Code::BadMetadata, here);
                serde_json::from_slice(&json).unwrap_or(Value::Null)
            }
        };
        let (key, _) = text::decode_string(key.bytes);
        self.properties.insert(key, value);
        Ok(false)
    }

    fn interpret(&self, raw: Raw<'_>, here: Option<u64>, stats: &mut Stats) -> Value {
        if raw.bytes.len() > MAX_VALUE_BYTES {
            stats.note(Code::UnreadableMetadata, here);
            return Value::Null;
        }
        if matches!(raw.kind, Kind::Text | Kind::EscapedText) {
            let (value, repairs) = text::decode_string(raw.bytes);
            if !repairs.is_empty() {
                stats.note(Code::BadMetadata, here);
            }
            return Value::String(value);
        }
        if let Ok(value) = serde_json::from_slice(raw.bytes) {
            return value;
        }
        stats.note(Code::BadMetadata, here);
        let (json, _) = text::canonical_json(raw.bytes);
        serde_json::from_str(&json)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(raw.bytes).into_owned()))
    }

    /// Finds events again behind something that is no JSON.
    fn resynchronise(
        &mut self,
        cursor: &Cursor<'_>,
        at: usize,
        offset: u64,
        is_last: bool,
        stats: &mut Stats,
    ) -> Next {
        let rest = &cursor.bytes[at..];
        let here = Some(offset + at as u64);
        if let Some(array) = find_events_key(rest) {
            stats.note(Code::UnreadableMetadata, here);
            self.state = State::Members;
            return self.enter_events(&Cursor::new(cursor.bytes, at + array), stats, offset);
        }
        if let Some(event) = boundary::find(rest, 0).filter(|_| self.arrays > 0) {
            // The array seemed to end inside a damaged event.
            stats.note(Code::BrokenEvent, here);
            return Next::Events(at + event);
        }
        if !is_last {
            return Next::More(at);
        }
        let code = if self.state == State::End { Code::TrailingGarbage } else { Code::UnreadableMetadata };
        stats.note(code, here);
        Next::More(cursor.bytes.len())
    }
}

/// Position of the `[` of `"traceEvents": [`.
fn find_events_key(bytes: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"\"traceEvents\"";
    memchr::memmem::find_iter(bytes, KEY).find_map(|at| {
        let mut cursor = Cursor::new(bytes, at + KEY.len());
        (cursor.next_token() == Ok(b':')).then(|| cursor.at += 1)?;
        (cursor.next_token() == Ok(b'[')).then_some(cursor.at)
    })
}
