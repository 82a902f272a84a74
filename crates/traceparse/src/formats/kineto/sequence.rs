//! Puts chunks that were parsed out of order back into the order of the file.
//!
//! A chunk is parsed on the assumption that it begins between two events. Whether that was true is
//! known once the chunk before it is in: only then are its rows taken. Where it was not true (the
//! header, the footer, an event that was cut, a damaged one), the bytes are parsed again here.

use std::collections::BTreeMap;

use super::boundary::{self, LOOKAHEAD, LOOKBACK, Place};
use super::events::{End, Gap, MAX_EVENT, Run};
use super::feed::Chunk;
use super::outline::{Next, Outline};
use super::rows::{Batch, RowBuilder};
use crate::error::Result;
use crate::stats::Code;

/// Content after which the size of the tables is estimated from what was read so far.
const ESTIMATE_AFTER: u64 = 4 << 20;

/// A chunk on its way: what it was parsed to travels with it, and the memory of both is used again.
///
/// It travels in a box, since the columns of all tables take tens of kilobytes before they hold a row.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) chunk: Chunk,
    pub(crate) batch: Batch,
    /// How the chunk ended; `None` if it was not parsed.
    pub(crate) end: Option<End>,
    /// The thread that used it last.
    pub(crate) thread: usize,
}

/// What the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// What stands around the events.
    Outline,
    /// Events, and what stands before the next.
    Events(Gap),
    /// An event that was given up; its offset is given if it is not yet known whether it is
    /// broken or cut off.
    Skip(Option<u64>),
}

/// Takes chunks in order.
pub(crate) struct Sequencer<'s> {
    rows: RowBuilder<'s>,
    waiting: BTreeMap<u64, Box<Piece>>,
    next_index: u64,
    mode: Mode,
    /// Bytes of something that is not complete yet, and the offset of the first.
    pending: Vec<u8>,
    pending_offset: u64,
    /// Length of `pending` at which it is worth trying again.
    retry_at: usize,
    strict: bool,
    is_estimated: bool,
    pub(crate) outline: Outline,
    /// Everything so far, in the order of the file.
    pub(crate) taken: Batch,
}

impl<'s> Sequencer<'s> {
    pub(crate) fn new(rows: RowBuilder<'s>, strict: bool) -> Self {
        Self {
            rows,
            waiting: BTreeMap::new(),
            next_index: 0,
            mode: Mode::Outline,
            pending: Vec::new(),
            pending_offset: 0,
            retry_at: 0,
            strict,
            is_estimated: false,
            outline: Outline::default(),
            taken: Batch::default(),
        }
    }

    /// Takes a piece; `recycle` gets every piece that is no longer needed.
    pub(crate) fn accept(&mut self, piece: Box<Piece>, mut recycle: impl FnMut(Box<Piece>)) -> Result<()> {
        self.waiting.insert(piece.chunk.index, piece);
        while let Some(mut piece) = self.waiting.remove(&self.next_index) {
            self.next_index += 1;
            self.commit(&mut piece)?;
            if !self.is_estimated && piece.chunk.offset >= ESTIMATE_AFTER {
                self.is_estimated = true;
                // One part in sixteen more, for files that are denser towards their end.
                self.taken.tables.reserve_times(1.0625 / piece.chunk.file_share.clamp(1e-4, 1.0));
            }
            recycle(piece);
        }
        Ok(())
    }

    fn commit(&mut self, piece: &mut Piece) -> Result<()> {
        let Piece { chunk, batch, end, .. } = piece;
        let bytes = chunk.bytes();
        if self.pending.is_empty() {
            return match (self.mode, *end) {
                (Mode::Events(Gap::Comma), Some(end)) => {
                    self.take(batch)?;
                    match self.finish_run(bytes, chunk.offset, end, chunk.is_last) {
                        Some(at) => self.read_on(bytes, at, chunk.offset, chunk.is_last),
                        None => self.check_strict(),
                    }
                }
                _ => self.read_on(bytes, 0, chunk.offset, chunk.is_last),
            };
        }
        self.pending.extend_from_slice(bytes);
        if self.pending.len() < self.retry_at && !chunk.is_last {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        self.read_on(&pending, 0, self.pending_offset, chunk.is_last)
    }

    /// Reads `bytes` from `at` on, whatever they are.
    fn read_on(&mut self, bytes: &[u8], mut at: usize, offset: u64, is_last: bool) -> Result<()> {
        loop {
            let next = match self.mode {
                Mode::Skip(since) => self.skip(bytes, at, since, offset, is_last),
                Mode::Outline => {
                    match self.outline.advance(bytes, at, offset, is_last, &mut self.taken.stats) {
                        Next::Events(start, gap) => {
                            self.mode = Mode::Events(gap);
                            Some(start)
                        }
                        Next::More(from) => {
                            self.keep(bytes, from, offset);
                            None
                        }
                    }
                }
                Mode::Events(gap) => {
                    let run = Run { bytes, start: at, offset, gap, is_last };
                    let mut batch = Batch::default();
                    let end = run.parse(&mut self.rows, &mut batch);
                    self.take(&mut batch)?;
                    self.finish_run(bytes, offset, end, is_last)
                }
            };
            match next {
                Some(next) => at = next,
                None => return self.check_strict(),
            }
        }
    }

    /// Takes note of how a run of events ended; returns where to read on.
    fn finish_run(&mut self, bytes: &[u8], offset: u64, end: End, is_last: bool) -> Option<usize> {
        match end {
            End::Between(gap) => {
                self.mode = Mode::Events(gap);
                if is_last {
                    self.taken.stats.note(Code::Truncated, Some(offset + bytes.len() as u64));
                }
                None
            }
            End::Inside(from, gap) => {
                self.mode = Mode::Events(gap);
                self.keep(bytes, from, offset);
                None
            }
            End::Closed(bracket) => {
                self.outline.close_events();
                self.mode = Mode::Outline;
                Some(bracket + 1)
            }
            End::Skipping(from, since) => {
                self.mode = Mode::Skip(since);
                Some(from)
            }
        }
    }

    /// Finds the events behind one that was given up; returns where they go on.
    fn skip(
        &mut self,
        bytes: &[u8],
        at: usize,
        since: Option<u64>,
        offset: u64,
        is_last: bool,
    ) -> Option<usize> {
        let (next, gap) = match boundary::find(&bytes[at..]) {
            Some(Place::Event(next)) => (at + next, Gap::Comma),
            Some(Place::Closing(next)) => (at + next, Gap::Element),
            None if is_last => {
                self.taken.stats.note(Code::Truncated, since.or(Some(offset + bytes.len() as u64)));
                return None;
            }
            None => {
                self.keep(bytes, bytes.len().saturating_sub(LOOKAHEAD + LOOKBACK).max(at), offset);
                return None;
            }
        };
        if since.is_some() {
            self.taken.stats.note(Code::BrokenEvent, since);
        }
        self.mode = Mode::Events(gap);
        Some(next)
    }

    /// Keeps what cannot be decided on yet.
    fn keep(&mut self, bytes: &[u8], from: usize, offset: u64) {
        self.pending = bytes[from..].to_vec();
        self.pending_offset = offset + from as u64;
        let length = self.pending.len();
        // Doubling, so that reading an event anew costs no more than reading it once.
        self.retry_at = match self.mode {
            Mode::Skip(_) => 0,
            _ => (2 * length).min(MAX_EVENT).max(length + 1),
        };
    }

    fn take(&mut self, batch: &mut Batch) -> Result<()> {
        self.taken.append(batch)?;
        self.check_strict()
    }

    fn check_strict(&self) -> Result<()> {
        if self.strict { self.taken.stats.refuse_loss() } else { Ok(()) }
    }
}
