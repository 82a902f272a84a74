//! Reads what stands around the events: the top-level keys and values of the file.
//!
//! As with events, what is decided depends on the content alone: with too few bytes to decide, the
//! outline asks for more.

use serde_json::{Map, Value};

use super::boundary::{self, LOOKAHEAD, LOOKBACK, Place, skip_space};
use super::events::Gap;
use super::repair;
use super::scan::{Cursor, Kind, Raw, Stop};
use super::text;
use crate::stats::{Code, Stats};

/// Longest key and metadata value that are read.
const MAX_MEMBER_BYTES: usize = 64 << 20;
/// Bytes within which a damaged value is repaired.
const REPAIR_WINDOW: usize = 1 << 20;
/// Length from which on a value is suspected to have swallowed the events, by a bracket or quote
/// that is missing.
const SUSPECT_BYTES: usize = 64 << 10;

/// What the outline found behind the last byte it consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Elements of an array of events, at this position and behind this.
    Events(usize, Gap),
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
    /// Inside a document, behind something that is no JSON.
    Lost,
    /// Behind the end of a document and something that does not belong there.
    Garbage,
}

/// Why a member could not be read.
enum Trouble {
    /// More bytes are needed.
    Wait,
    /// It is beyond repair.
    Lost,
    /// The file ends inside it.
    Cut,
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

    /// Whether the file ends inside a document that was read up to there.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.state, State::Start | State::Members)
    }

    /// Whether what was read last is no JSON.
    pub(crate) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// Consumes members from `start` on until events begin or bytes run out.
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
            if matches!(self.state, State::Lost | State::Garbage) {
                return self.find_way_back(bytes, cursor.at, offset, is_last, stats);
            }
            let Ok(token) = cursor.next_token() else { return Next::More(bytes.len()) };
            let at = cursor.at;
            let here = Some(offset + at as u64);
            match (self.state, token) {
                (State::Members | State::End, b'{') if self.arrays > 0 => {
                    if bytes.len() - at < LOOKAHEAD && !is_last {
                        return Next::More(at);
                    }
                    if boundary::begins_event(&bytes[at..]) {
                        stats.note(Code::StrayBracket, here);
                        return Next::Events(at, Gap::Comma);
                    }
                    self.open_document(&mut cursor, here, stats);
                }
                (State::Start | State::End, b'{') => self.open_document(&mut cursor, here, stats),
                (State::Start | State::End, b'[') => {
                    stats.note(Code::BareArray, here);
                    if self.state == State::End {
                        stats.note(Code::ConcatenatedDocuments, here);
                    }
                    self.is_bare = true;
                    cursor.at += 1;
                    return self.enter_events(cursor.at, here, stats);
                }
                (State::Members, b'}') => {
                    self.state = State::End;
                    cursor.at += 1;
                }
                (State::Members, b',') => cursor.at += 1,
                (State::End, b',') if self.arrays > 0 => {
                    stats.note(Code::TrailingGarbage, here);
                    cursor.at += 1;
                }
                (State::Members, b'"') => match self.member(&mut cursor, offset, is_last, stats) {
                    Ok(true) => return self.enter_events(cursor.at, here, stats),
                    Ok(false) => {}
                    Err(Trouble::Wait) => return Next::More(at),
                    Err(Trouble::Cut) if find_events_key(&bytes[at..]).is_none() => {
                        stats.note(Code::Truncated, here);
                        return Next::More(bytes.len());
                    }
                    Err(Trouble::Lost | Trouble::Cut) => {
                        self.lose_way(here, stats);
                        cursor.at = at;
                    }
                },
                _ => self.lose_way(here, stats),
            }
        }
    }

    fn lose_way(&mut self, here: Option<u64>, stats: &mut Stats) {
        if self.state == State::End {
            self.state = State::Garbage;
            stats.note(Code::TrailingGarbage, here);
        } else {
            self.state = State::Lost;
            stats.note(Code::UnreadableMetadata, here);
        }
    }

    fn open_document(&mut self, cursor: &mut Cursor<'_>, here: Option<u64>, stats: &mut Stats) {
        if self.state == State::Members {
            return self.lose_way(here, stats);
        }
        if self.state == State::End {
            stats.note(Code::ConcatenatedDocuments, here);
        }
        self.state = State::Members;
        self.is_bare = false;
        cursor.at += 1;
    }

    /// The events that begin at `at`.
    fn enter_events(&mut self, at: usize, here: Option<u64>, stats: &mut Stats) -> Next {
        if self.arrays > 0 {
            stats.note(Code::RepeatedEvents, here);
        }
        self.arrays += 1;
        Next::Events(at, Gap::Start)
    }

    /// Reads one member; true if it is an array of events, the cursor then stands behind its `[`.
    fn member(
        &mut self,
        cursor: &mut Cursor<'_>,
        offset: u64,
        is_last: bool,
        stats: &mut Stats,
    ) -> Result<bool, Trouble> {
        let begin = cursor.at;
        let bytes = cursor.bytes;
        let trouble = |stop| match stop {
            Stop::Incomplete if bytes.len() - begin > MAX_MEMBER_BYTES => Trouble::Lost,
            Stop::Incomplete if is_last => Trouble::Cut,
            Stop::Incomplete => Trouble::Wait,
            Stop::Syntax => Trouble::Lost,
        };
        let mut ahead = cursor.clone();
        let (key, first) = key_and_first(&mut ahead).map_err(trouble)?;
        cursor.at = ahead.at;
        let key = text::decode_string(key.bytes).0;
        if key == "traceEvents" && first == b'[' {
            cursor.at += 1;
            return Ok(true);
        }
        let start = cursor.at;
        let here = Some(offset + start as u64);
        let scanned: Result<Raw<'_>, Stop> = cursor.value().and_then(|raw| {
            // A text whose quotes are not escaped seems to end early.
            match cursor.next_token()? {
                b',' | b'}' => Ok(raw),
                _ => Err(Stop::Syntax),
            }
        });
        let rest = &bytes[start..];
        let is_suspect = |len: usize| {
            len > SUSPECT_BYTES && find_events_key(&rest[..rest.len().min(SUSPECT_BYTES)]).is_some()
        };
        let value = match scanned {
            Ok(_) if cursor.at - begin > MAX_MEMBER_BYTES => return Err(Trouble::Lost),
            Ok(raw) if !is_suspect(cursor.at - start) => interpret(raw, here, stats),
            Err(Stop::Incomplete) if !is_last && !is_suspect(rest.len()) => {
                return Err(trouble(Stop::Incomplete));
            }
            _ => {
                let is_cut = is_last && matches!(scanned, Err(Stop::Incomplete));
                let mended = mend(rest, is_last);
                let (value, used) = mended.map_err(|t| if is_cut { Trouble::Cut } else { t })?;
                cursor.at = start + used;
                stats.note(Code::BadMetadata, here);
                value
            }
        };
        self.properties.insert(key, value);
        Ok(false)
    }

    /// Finds events behind something that is no JSON.
    fn find_way_back(
        &mut self,
        bytes: &[u8],
        at: usize,
        offset: u64,
        is_last: bool,
        stats: &mut Stats,
    ) -> Next {
        let array = find_events_key(&bytes[at..]).map(|len| at + len);
        let end = array.unwrap_or(bytes.len());
        let mut from = at;
        while self.arrays > 0
            && let Some(place) = boundary::find_between(bytes, from, end)
        {
            match place {
                Place::Closing(bracket) => from = bracket,
                Place::Event(event) => {
                    // The array seemed to end inside a damaged event.
                    stats.note(Code::BrokenEvent, Some(offset + event as u64));
                    return Next::Events(event, Gap::Comma);
                }
            }
        }
        if let Some(array) = array {
            self.state = State::Members;
            self.is_bare = false;
            return self.enter_events(array, Some(offset + array as u64), stats);
        }
        if is_last {
            return Next::More(bytes.len());
        }
        Next::More(bytes.len().saturating_sub(LOOKAHEAD + LOOKBACK).max(at))
    }
}

/// The key at the cursor, and the first byte of its value, at which the cursor then stands.
fn key_and_first<'a>(cursor: &mut Cursor<'a>) -> Result<(Raw<'a>, u8), Stop> {
    let key = cursor.string()?;
    if cursor.next_token()? != b':' {
        return Err(Stop::Syntax);
    }
    cursor.at += 1;
    Ok((key, cursor.next_token()?))
}

/// The value that the token `raw` stands for.
fn interpret(raw: Raw<'_>, here: Option<u64>, stats: &mut Stats) -> Value {
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
    damaged_value(raw.bytes)
}

/// The value of a token that is no valid JSON; its text if nothing else can be made of it.
fn damaged_value(bytes: &[u8]) -> Value {
    let (json, _) = text::canonical_json(bytes);
    serde_json::from_str(&json).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

/// Repairs the damaged value at the start of `bytes`; returns it and its length.
fn mend(bytes: &[u8], is_last: bool) -> Result<(Value, usize), Trouble> {
    // A value does not reach over the beginning of the events.
    let array = find_events_key(&bytes[..bytes.len().min(REPAIR_WINDOW)]);
    if array.is_none() && !is_last && bytes.len() < REPAIR_WINDOW {
        return Err(Trouble::Wait);
    }
    let window = &bytes[..array.unwrap_or(bytes.len()).min(REPAIR_WINDOW)];
    let attempt = repair::rewrite_member(window);
    let Ok(found) = attempt.outcome else { return Err(Trouble::Lost) };
    Ok((damaged_value(&found.json), found.end))
}

/// Position behind the `[` of `"traceEvents": [`.
fn find_events_key(bytes: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"\"traceEvents\"";
    memchr::memmem::find_iter(bytes, KEY).find_map(|at| {
        let rest = skip_space(bytes.get(at + KEY.len()..)?).strip_prefix(b":")?;
        let rest = skip_space(rest).strip_prefix(b"[")?;
        Some(bytes.len() - rest.len())
    })
}
