//! Puts chunks that were parsed out of order back into the order of the file.
//!
//! A chunk is parsed on the assumption that it begins between two events. Whether that was true is
//! known once the chunk before it is in: only then are its rows taken. Where it was not true (the
//! header, the footer, an event that was cut, a damaged one), the bytes are parsed again here.

use std::collections::BTreeMap;

use super::boundary;
use super::events::{End, Run};
use super::feed::Chunk;
use super::outline::{Next, Outline};
use super::rows::{Batch, RowBuilder};
use crate::error::{Error, ErrorKind, Result};
use crate::schema::Tables;
use crate::stats::{Code, Stats};

/// Largest single event, and largest metadata value.
const MAX_PENDING: usize = 256 << 20;

/// Content after which the size of the tables is estimated from what was read so far.
const ESTIMATE_AFTER: u64 = 4 << 20;

/// A chunk on its way: what it was parsed to travels with it, and the memory of both is used again.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) chunk: Chunk,
    pub(crate) batch: Batch,
    /// How the chunk ended; `None` if it was not parsed.
    pub(crate) end: Option<End>,
}

/// What the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// What stands around the events.
    Outline,
    /// Events; `true` if the last token was a comma.
    Events(bool),
    /// An event that is too large to keep.
    Skip,
    /// Nothing more is read.
    Done,
}

/// Takes chunks in order.
pub(crate) struct Sequencer<'s> {
    rows: RowBuilder<'s>,
    waiting: BTreeMap<u64, Piece>,
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
    pub(crate) tables: Tables,
    pub(crate) stats: Stats,
    pub(crate) events: u64,
    pub(crate) short_fractions: (u64, u64),
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
            tables: Tables::default(),
            stats: Stats::default(),
            events: 0,
            short_fractions: (0, 0),
        }
    }

    /// Takes a piece; `recycle` gets every piece that is no longer needed.
    pub(crate) fn accept(&mut self, piece: Piece, mut recycle: impl FnMut(Piece)) -> Result<()> {
        self.waiting.insert(piece.chunk.index, piece);
        while let Some(mut piece) = self.waiting.remove(&self.next_index) {
            self.next_index += 1;
            self.commit(&mut piece)?;
            if !self.is_estimated && piece.chunk.offset >= ESTIMATE_AFTER {
                self.is_estimated = true;
                // One part in sixteen more, for files that are denser towards their end.
                self.tables.reserve_times(1.0625 / piece.chunk.file_share.clamp(1e-4, 1.0));
            }
            recycle(piece);
        }
        Ok(())
    }

    fn commit(&mut self, piece: &mut Piece) -> Result<()> {
        let Piece { chunk, batch, end } = piece;
        let bytes = chunk.bytes();
        if let (Mode::Events(_), Some(end), true) = (self.mode, *end, self.pending.is_empty()) {
            self.take(batch)?;
            return self.finish_run(bytes, chunk.offset, end, chunk.is_last);
        }
        if self.pending.is_empty() {
            return self.read_on(bytes, 0, chunk.offset, chunk.is_last);
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
            match self.mode {
                Mode::Done => return Ok(()),
                Mode::Skip => match boundary::find(bytes, at) {
                    Some(next) => {
                        at = next;
                        self.mode = Mode::Events(true);
                    }
                    None => {
                        let keep = bytes.len().saturating_sub(64).max(at);
                        self.keep(bytes, keep, offset);
                        return Ok(());
                    }
                },
                Mode::Outline => match self.outline.advance(bytes, at, offset, is_last, &mut self.stats) {
                    Next::Events(start) => {
                        at = start;
                        self.mode = Mode::Events(false);
                    }
                    Next::More(from) => {
                        self.keep(bytes, from, offset);
                        return self.check_strict();
                    }
                },
                Mode::Events(after_comma) => {
                    let run = Run { bytes, start: at, offset, after_comma, is_last };
                    let mut batch = Batch::default();
                    let end = run.parse(&mut self.rows, &mut batch);
                    self.take(&mut batch)?;
                    match end {
                        End::Closed(bracket) => {
                            self.outline.close_events();
                            self.mode = Mode::Outline;
                            at = bracket + 1;
                        }
                        _ => return self.finish_run(bytes, offset, end, is_last),
                    }
                }
            }
        }
    }

    /// Takes note of how a run of events ended.
    fn finish_run(&mut self, bytes: &[u8], offset: u64, end: End, is_last: bool) -> Result<()> {
        match end {
            End::Between(after_comma) => {
                self.mode = Mode::Events(after_comma);
                if is_last {
                    self.stats.note(Code::Truncated, Some(offset + bytes.len() as u64));
                }
            }
            End::Inside(from) => {
                // What came before the event ended with a comma, or is the start of the array.
                self.mode = Mode::Events(true);
                self.keep(bytes, from, offset);
            }
            End::Closed(bracket) => {
                self.outline.close_events();
                self.mode = Mode::Outline;
                return self.read_on(bytes, bracket + 1, offset, is_last);
            }
            End::Truncated => self.mode = Mode::Done,
        }
        self.check_strict()
    }

    fn keep(&mut self, bytes: &[u8], from: usize, offset: u64) {
        self.pending = bytes[from..].to_vec();
        self.pending_offset = offset + from as u64;
        self.retry_at = if self.mode == Mode::Skip { 0 } else { 2 * self.pending.len() };
        if self.pending.len() > MAX_PENDING {
            self.give_up_pending();
        }
    }

    /// Drops what is too large to be kept in memory.
    fn give_up_pending(&mut self) {
        let here = Some(self.pending_offset);
        self.pending = Vec::new();
        if self.mode == Mode::Outline {
            self.stats.note(Code::UnreadableMetadata, here);
            self.mode = Mode::Done;
        } else {
            self.stats.note(Code::OversizedEvent, here);
            self.stats.seen += 1;
            self.stats.dropped += 1;
            self.events += 1;
            self.mode = Mode::Skip;
        }
    }

    /// Appends the rows of `batch`, renumbered to their place in the file.
    fn take(&mut self, batch: &mut Batch) -> Result<()> {
        let Ok(base) = u32::try_from(self.events) else {
            let message = "has more than 4,294,967,295 events; split it by rank or by time";
            return Err(Error::new(ErrorKind::Damaged, message));
        };
        batch.tables.shift_rows(base);
        self.tables.append(&mut batch.tables);
        self.events += u64::from(batch.rows);
        self.short_fractions.0 += batch.short_fractions.0;
        self.short_fractions.1 += batch.short_fractions.1;
        self.stats.merge(&batch.stats);
        self.check_strict()
    }

    fn check_strict(&self) -> Result<()> {
        if self.strict { refuse_loss(&self.stats) } else { Ok(()) }
    }
}

/// An error if anything was lost.
pub(crate) fn refuse_loss(stats: &Stats) -> Result<()> {
    let Some((code, finding)) = stats.first_loss() else { return Ok(()) };
    let error = Error::new(ErrorKind::Strict, code.message());
    Err(match finding.first_offset {
        Some(at) => error.with_offset(at),
        None => error,
    })
}
