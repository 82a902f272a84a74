//! Parses the elements of `traceEvents` out of a run of bytes.

use super::boundary;
use super::event::RawEvent;
use super::repair;
use super::rows::{Batch, RowBuilder};
use super::scan::{Cursor, Stop};
use crate::stats::Code;

/// Bytes within which a damaged event is repaired.
const REPAIR_WINDOW: usize = 1 << 20;
/// Event boundaries that may lie inside the text of a damaged event.
const REPAIR_BOUNDARIES: usize = 3;

/// How a run of bytes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Between two events; `true` if the last token was a comma.
    Between(bool),
    /// At the `]` that closes the array, which is at this position.
    Closed(usize),
    /// Inside the event that begins at this position; more bytes are needed.
    Inside(usize),
    /// At the end of the file, inside an event.
    Truncated,
}

/// A run of bytes of `traceEvents`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) bytes: &'a [u8],
    /// Position at which to start, between two events.
    pub(crate) start: usize,
    /// Offset of `bytes` in the uncompressed content.
    pub(crate) offset: u64,
    /// Whether the last token before `start` was a comma.
    pub(crate) after_comma: bool,
    /// Whether nothing follows.
    pub(crate) is_last: bool,
}

impl Run<'_> {
    /// Parses every event of the run into `batch`.
    pub(crate) fn parse(&self, rows: &mut RowBuilder<'_>, batch: &mut Batch) -> End {
        let mut cursor = Cursor::new(self.bytes, self.start);
        let mut event = RawEvent::default();
        let mut after_comma = self.after_comma;
        loop {
            let Ok(token) = cursor.next_token() else { return End::Between(after_comma) };
            let start = cursor.at;
            let offset = self.offset + start as u64;
            match token {
                b',' => {
                    cursor.at += 1;
                    after_comma = true;
                    continue;
                }
                b']' => {
                    if after_comma && batch.rows > 0 {
                        batch.stats.note(Code::TrailingComma, Some(offset));
                    }
                    return End::Closed(start);
                }
                b'{' => match event.parse(&mut cursor, &mut rows.keys) {
                    Ok(()) => rows.add(&mut event, batch, offset),
                    Err(stop) => match self.repair(start, stop, rows, batch) {
                        Ok(next) => cursor.at = next,
                        Err(end) => return end,
                    },
                },
                _ => match self.skip_other(&mut cursor, batch) {
                    Ok(()) => {}
                    Err(end) => return end,
                },
            }
            after_comma = false;
        }
    }

    /// Deals with an event that cannot be parsed; returns where to go on.
    fn repair(
        &self,
        start: usize,
        stop: Stop,
        rows: &mut RowBuilder<'_>,
        batch: &mut Batch,
    ) -> Result<usize, End> {
        let offset = self.offset + start as u64;
        let window = &self.bytes[start..self.bytes.len().min(start + REPAIR_WINDOW)];
        let sees_all = self.is_last || window.len() == REPAIR_WINDOW;
        if stop == Stop::Incomplete && !self.is_last {
            return Err(End::Inside(start));
        }
        let mut boundaries = Vec::new();
        let mut from = 0;
        while boundaries.len() < REPAIR_BOUNDARIES
            && let Some(at) = boundary::find(window, from)
        {
            boundaries.push(at);
            from = at;
        }
        let mut ends = boundaries.clone();
        if ends.len() < REPAIR_BOUNDARIES {
            if !sees_all {
                return Err(End::Inside(start));
            }
            ends.push(window.len());
        }
        for end in ends {
            if let Some((json, used)) = repair::rewrite_object(&window[..end])
                && add_repaired(&json, offset, rows, batch)
            {
                return Ok(start + used);
            }
        }
        batch.stats.seen += 1;
        batch.stats.dropped += 1;
        batch.rows += 1;
        match boundaries.first() {
            Some(&next) => {
                batch.stats.note(Code::BrokenEvent, Some(offset));
                Ok(start + next)
            }
            None if stop == Stop::Incomplete || window.len() < REPAIR_WINDOW => {
                batch.stats.note(Code::Truncated, Some(offset));
                Err(End::Truncated)
            }
            None => {
                batch.stats.note(Code::BrokenEvent, Some(offset));
                boundary::find(self.bytes, start).ok_or(End::Truncated)
            }
        }
    }

    /// Skips an element that is no object.
    fn skip_other(&self, cursor: &mut Cursor<'_>, batch: &mut Batch) -> Result<(), End> {
        let start = cursor.at;
        let offset = Some(self.offset + start as u64);
        let end = match cursor.value() {
            Ok(_) => cursor.at,
            Err(Stop::Incomplete) if !self.is_last => return Err(End::Inside(start)),
            Err(_) => match boundary::find(self.bytes, start) {
                Some(next) => next,
                None if !self.is_last => return Err(End::Inside(start)),
                None => {
                    batch.stats.note(Code::Truncated, offset);
                    return Err(End::Truncated);
                }
            },
        };
        batch.stats.seen += 1;
        batch.stats.dropped += 1;
        batch.rows += 1;
        batch.stats.note(Code::NotAnObject, offset);
        cursor.at = end;
        Ok(())
    }
}

/// Adds the event `json` was rewritten to; false if it still cannot be one event.
fn add_repaired(json: &[u8], offset: u64, rows: &mut RowBuilder<'_>, batch: &mut Batch) -> bool {
    let mut event = RawEvent::default();
    let parsed = event.parse(&mut Cursor::new(json, 0), &mut rows.keys);
    // A key twice: the end of a text was not found before the next event began.
    if parsed.is_err() || event.has_duplicate {
        return false;
    }
    batch.stats.note(Code::RepairedEvent, Some(offset));
    rows.add(&mut event, batch, offset);
    true
}
