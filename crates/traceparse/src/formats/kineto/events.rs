//! Parses the elements of `traceEvents` out of a run of bytes.
//!
//! Whatever is decided about an element depends on the content alone and not on where it was cut
//! into chunks: with too few bytes to decide, a run ends [`End::Inside`] the element.

use super::boundary::{self, Place};
use super::event::RawEvent;
use super::repair::{self, Halt};
use super::rows::{Batch, RowBuilder};
use super::scan::{Cursor, Kind, Stop};
use crate::stats::Code;

/// Bytes within which a damaged event is repaired.
const REPAIR_WINDOW: usize = 1 << 20;
/// Event boundaries that may lie inside the text of a damaged event.
const REPAIR_BOUNDARIES: usize = 3;
/// Length from which on an element is suspected to have swallowed others, by a bracket or quote
/// that is missing.
const SUSPECT_BYTES: usize = 4 << 10;
/// Places inside a suspicious event at which another one is looked for.
const SUSPECT_PLACES: usize = 8;
/// Largest single event.
pub(crate) const MAX_EVENT: usize = 256 << 20;

/// What stands before a position between two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gap {
    /// The `[` of the array.
    Start,
    /// A comma.
    Comma,
    /// An element.
    Element,
}

/// How a run of bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Between two elements.
    Between(Gap),
    /// At the `]` that closes the array, which is at this position.
    Closed(usize),
    /// Inside the element that begins at this position; more bytes are needed.
    Inside(usize, Gap),
    /// Behind this position, where an element was given up; the next is not in sight. Its offset
    /// is given if it is not yet known whether it is broken or cut off.
    Skipping(usize, Option<u64>),
}

/// A run of bytes of `traceEvents`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) bytes: &'a [u8],
    /// Position at which to start, between two elements.
    pub(crate) start: usize,
    /// Offset of `bytes` in the uncompressed content.
    pub(crate) offset: u64,
    /// What stands before `start`.
    pub(crate) gap: Gap,
    /// Whether nothing follows.
    pub(crate) is_last: bool,
}

/// What became of one element.
enum Step {
    /// It is dealt with; the next one begins behind this position.
    Next(usize),
    /// It was dropped; this is where events go on.
    Resume(usize),
    /// More bytes are needed.
    Wait,
    /// It was dropped, and the run ends.
    Skip(End),
}

impl<'r> Run<'r> {
    /// Parses every event of the run into `batch`.
    pub(crate) fn parse(&self, rows: &mut RowBuilder<'_>, batch: &mut Batch) -> End {
        let mut cursor = Cursor::new(self.bytes, self.start);
        let mut event = RawEvent::default();
        let mut gap = self.gap;
        loop {
            let Ok(token) = cursor.next_token() else { return End::Between(gap) };
            let start = cursor.at;
            let offset = self.offset + start as u64;
            if token == b',' {
                if gap != Gap::Element {
                    batch.stats.note(Code::TrailingComma, Some(offset));
                }
                gap = Gap::Comma;
                cursor.at += 1;
                continue;
            }
            if token == b']' {
                if gap == Gap::Comma {
                    batch.stats.note(Code::TrailingComma, Some(offset));
                }
                return End::Closed(start);
            }
            let step = if token != b'{' {
                self.skip_other(&mut cursor, batch)
            } else {
                match event.parse(&mut cursor, &mut rows.keys) {
                    Ok(()) if cursor.at - start <= SUSPECT_BYTES => {
                        rows.add(&mut event, batch, offset);
                        Step::Next(cursor.at)
                    }
                    Ok(()) => self.add_large(start, cursor.at, &mut event, rows, batch),
                    Err(stop) => self.add_damaged(start, stop, cursor.at - start, rows, batch),
                }
            };
            let before = std::mem::replace(&mut gap, Gap::Element);
            if before == Gap::Element && !matches!(step, Step::Wait) {
                batch.stats.note(Code::MissingComma, Some(offset));
            }
            match step {
                Step::Next(end) => cursor.at = end,
                Step::Resume(next) => {
                    cursor.at = next;
                    gap = if self.bytes[next] == b'{' { Gap::Comma } else { Gap::Element };
                }
                Step::Wait => return End::Inside(start, before),
                Step::Skip(end) => return end,
            }
        }
    }

    /// Adds a complete event that is suspiciously large.
    #[cold]
    fn add_large(
        &self,
        start: usize,
        end: usize,
        event: &mut RawEvent<'r>,
        rows: &mut RowBuilder<'_>,
        batch: &mut Batch,
    ) -> Step {
        if self.swallows_events(start, end - start, rows) {
            return self.mend(start, 0, rows, batch);
        }
        if end - start > MAX_EVENT {
            return self.give_up_oversized(start, batch);
        }
        rows.add(event, batch, self.offset + start as u64);
        Step::Next(end)
    }

    /// Deals with an event that cannot be parsed, or not beyond its first bytes.
    #[cold]
    fn add_damaged(
        &self,
        start: usize,
        stop: Stop,
        parsed: usize,
        rows: &mut RowBuilder<'_>,
        batch: &mut Batch,
    ) -> Step {
        let length = if stop == Stop::Syntax { parsed } else { self.bytes.len() - start };
        if self.swallows_events(start, length, rows) {
            return self.mend(start, 0, rows, batch);
        }
        if length > MAX_EVENT {
            return self.give_up_oversized(start, batch);
        }
        if stop == Stop::Incomplete && !self.is_last {
            return Step::Wait;
        }
        self.mend(start, length, rows, batch)
    }

    /// Whether the first `length` bytes of the event at `start` seem to contain other events.
    ///
    /// Windows of fixed sizes are searched, for the same answer however many bytes are at hand.
    fn swallows_events(&self, start: usize, length: usize, rows: &mut RowBuilder<'_>) -> bool {
        let mut event = RawEvent::default();
        let mut size = SUSPECT_BYTES;
        while size <= length {
            let window = &self.bytes[start..start + size];
            let mut from = 0;
            for _ in 0..SUSPECT_PLACES {
                let Some(Place::Event(at)) = boundary::find_between(window, from, size) else { break };
                let is_event = event.parse(&mut Cursor::new(window, at), &mut rows.keys).is_ok();
                if is_event && event.phase.kind != Kind::Missing && event.ts.kind != Kind::Missing {
                    return true;
                }
                from = at;
            }
            size *= 4;
        }
        false
    }

    /// Repairs the damaged event at `start`, or drops it.
    fn mend(&self, start: usize, parsed: usize, rows: &mut RowBuilder<'_>, batch: &mut Batch) -> Step {
        let rest = &self.bytes[start..];
        let window = &rest[..rest.len().min(REPAIR_WINDOW)];
        let sees_all = self.is_last || window.len() == REPAIR_WINDOW;
        for boundaries in 0..=REPAIR_BOUNDARIES {
            let attempt = repair::rewrite_event(window, boundaries, |json| is_event(json, rows));
            if !sees_all && attempt.reached + boundary::LOOKAHEAD > window.len() {
                return Step::Wait;
            }
            match attempt.outcome {
                Err(Halt::Crossed) => {}
                Err(Halt::Failed) => break,
                Ok(found) => {
                    let offset = self.offset + start as u64;
                    let mut event = RawEvent::default();
                    let parsed = event.parse(&mut Cursor::new(&found.json, 0), &mut rows.keys);
                    debug_assert!(parsed.is_ok(), "it was accepted");
                    event.is_unescaped = found.is_unescaped;
                    batch.stats.note(Code::RepairedEvent, Some(offset));
                    rows.add(&mut event, batch, offset);
                    return Step::Next(start + found.end);
                }
            }
        }
        self.give_up(start, parsed, batch)
    }

    /// Drops the element at `start`, whose end is not known and of which so much was parsed.
    fn give_up(&self, start: usize, parsed: usize, batch: &mut Batch) -> Step {
        let offset = self.offset + start as u64;
        batch.count_dropped();
        // Events inside of what was parsed would have been found. To begin anew behind half of it
        // bounds the work by the size of the file, whatever is in it.
        let from = start + if parsed > SUSPECT_BYTES { parsed / 2 } else { 0 };
        match boundary::find(&self.bytes[from..]) {
            Some(Place::Event(next) | Place::Closing(next)) => {
                batch.stats.note(Code::BrokenEvent, Some(offset));
                Step::Resume(from + next)
            }
            None => Step::Skip(End::Skipping(from, Some(offset))),
        }
    }

    fn give_up_oversized(&self, start: usize, batch: &mut Batch) -> Step {
        batch.count_dropped();
        batch.stats.note(Code::OversizedEvent, Some(self.offset + start as u64));
        Step::Skip(End::Skipping(start + MAX_EVENT, None))
    }

    /// Skips an element that is no object.
    #[cold]
    fn skip_other(&self, cursor: &mut Cursor<'_>, batch: &mut Batch) -> Step {
        let start = cursor.at;
        let window = &self.bytes[start..];
        let window = &window[..window.len().min(SUSPECT_BYTES)];
        let mut inside = Cursor::new(window, 0);
        let value = inside.value();
        let end = start + inside.at;
        match value.and_then(|_| inside.next_token()) {
            Ok(b',' | b']') => {
                batch.count_dropped();
                batch.stats.note(Code::NotAnObject, Some(self.offset + start as u64));
                Step::Next(end)
            }
            Err(Stop::Incomplete) if !self.is_last && window.len() < SUSPECT_BYTES => Step::Wait,
            _ => self.give_up(start, 0, batch),
        }
    }
}

/// Whether `json` is one event.
fn is_event(json: &[u8], rows: &mut RowBuilder<'_>) -> bool {
    let mut event = RawEvent::default();
    let parsed = event.parse(&mut Cursor::new(json, 0), &mut rows.keys);
    let is_timeless = event.ts.kind == Kind::Missing && event.phase.bytes != b"M";
    // A key twice, or one missing: the end of a text was found in the wrong place.
    parsed.is_ok() && !event.has_duplicate && event.phase.kind != Kind::Missing && !is_timeless
}
