//! Reads a whole file on several threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::events::{Gap, Run};
use super::feed::Feed;
use super::header;
use super::rows::{Habits, RowBuilder, Shared};
use super::sequence::{Piece, Sequencer};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::format::{Bytes, Format, Opened};
use crate::options::ReadOptions;
use crate::stats::Code;
use crate::time::Fraction;
use crate::trace::Trace;

/// Bytes handed to a thread at once: large enough that starting a chunk costs nothing, small enough
/// that the chunks in flight stay in the caches and out of the memory budget.
const CHUNK_BYTES: usize = 1 << 20;

/// JSON of the PyTorch profiler.
pub(crate) struct Kineto;

impl Format for Kineto {
    fn name(&self) -> &'static str {
        "kineto"
    }

    fn takes(&self, file: &Opened<'_>) -> bool {
        let head = file.head();
        let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head).trim_ascii_start();
        matches!(text, [b'{' | b'[', ..]) && !is_perfetto(head)
    }

    fn read(&self, file: Opened<'_>, options: &ReadOptions) -> Result<Trace> {
        let path = file.path;
        let bytes = file.into_bytes()?;
        let mark = if bytes.head.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let mut trace = match read(bytes.without(mark), options, Habits::default())? {
            Ok(trace) => trace,
            Err(habits) => read(Bytes::open(path, mark)?, options, habits)?
                .map_err(|_| Error::new(ErrorKind::Io, "changed while it was being read"))?,
        };
        if mark > 0 {
            trace.stats.note(Code::ByteOrderMark, Some(0));
        }
        Ok(trace)
    }

    fn advice(&self, file: &Opened<'_>) -> Option<&'static str> {
        match file.head() {
            head if is_perfetto(head) => Some(
                "is a Perfetto protobuf trace. Export the profile as Chrome JSON (a file name that ends in \
                 .json)",
            ),
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("is UTF-16 text. Convert it to UTF-8"),
            _ => None,
        }
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether `head` is binary and begins with field 1 of a protobuf, length-delimited.
///
/// The tag is a line feed, and the length behind it can be the code of a bracket.
fn is_perfetto(head: &[u8]) -> bool {
    let is_binary = |b: &u8| b.is_ascii_control() && !b.is_ascii_whitespace();
    head.first() == Some(&0x0a) && head.iter().take(64).any(is_binary)
}

/// Reads a trace; if it turns out to be written otherwise than supposed, it must be read anew.
fn read(bytes: Bytes, options: &ReadOptions, habits: Habits) -> Result<std::result::Result<Trace, Habits>> {
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
        .clamp(1, 64);
    let chunk_bytes = options.chunk_bytes.unwrap_or(CHUNK_BYTES).max(1);
    let shared = Shared::default();
    let work = Work {
        feed: Mutex::new(Feed::new(bytes.source, bytes.head, bytes.offset as u64, chunk_bytes)),
        sequencer: Mutex::new(Sequencer::new(RowBuilder::new(&shared, habits), options.strict)),
        pool: Pool::new(2 * threads + 1),
        failed: AtomicBool::new(false),
        options,
    };
    work.run_on(threads, &shared, habits)?;
    let source = lock(work.feed).into_source();
    let Sequencer { outline, taken, .. } = lock(work.sequencer);
    if taken.habits() != habits {
        return Ok(Err(taken.habits()));
    }
    let (tables, mut stats, elsewhere) = (taken.tables, taken.stats, taken.elsewhere);
    stats.merge(&source.stats);
    if outline.is_cut() && stats.get(Code::Truncated).is_none() {
        stats.note(Code::Truncated, Some(source.content_bytes));
    }
    if habits.fraction == Fraction::Unpadded {
        stats.note(Code::UnpaddedFraction, None);
    }
    if options.strict {
        stats.refuse_loss()?;
    }
    header::finish(outline, tables, elsewhere, stats, &source, shared).map(Ok)
}

/// What the reading threads work on together.
struct Work<'w> {
    feed: Mutex<Feed>,
    sequencer: Mutex<Sequencer<'w>>,
    pool: Pool,
    failed: AtomicBool,
    options: &'w ReadOptions,
}

impl<'w> Work<'w> {
    /// Reads the whole content on so many threads.
    fn run_on(&self, threads: usize, shared: &'w Shared, habits: Habits) -> Result<()> {
        std::thread::scope(|scope| {
            let start = |thread| scope.spawn(move || self.run(thread, shared, habits));
            let others: Vec<_> = (1..threads).map(start).collect();
            let mut outcome = self.run(0, shared, habits);
            for other in others {
                let result = other.join().unwrap_or_else(|_| {
                    Err(Error::new(ErrorKind::Io, "a reader thread failed; please report this"))
                });
                outcome = outcome.and(result);
            }
            outcome
        })
    }

    /// Reads, parses and delivers chunks until there are no more.
    fn run(&self, thread: usize, shared: &'w Shared, habits: Habits) -> Result<()> {
        let mut rows = RowBuilder::new(shared, habits);
        // Also where a thread panics: the others would wait for its buffer.
        let stop = StopOthers(self);
        self.run_with(thread, &mut rows)?;
        std::mem::forget(stop);
        Ok(())
    }

    fn run_with(&self, thread: usize, rows: &mut RowBuilder<'_>) -> Result<()> {
        while let Some(mut piece) = self.pool.take(thread) {
            // A buffer is in hand before a chunk is claimed, so the thread that holds the oldest
            // chunk never waits for one.
            {
                let mut feed = guard(&self.feed);
                if self.failed.load(Ordering::Relaxed) || !feed.next_chunk(&mut piece.chunk)? {
                    drop(feed);
                    self.pool.put(piece);
                    return Ok(());
                }
                let (done, total) = feed.progress();
                drop(feed);
                if let Some(progress) = &self.options.progress
                    && !progress(done, total)
                {
                    return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
                }
            }
            parse(&mut piece, rows);
            guard(&self.sequencer).accept(piece, |piece| self.pool.put(piece))?;
        }
        Ok(())
    }
}

/// Stops all threads when it is dropped.
struct StopOthers<'a, 'w>(&'a Work<'w>);

impl Drop for StopOthers<'_, '_> {
    fn drop(&mut self) {
        self.0.failed.store(true, Ordering::Relaxed);
        self.0.pool.close();
    }
}

/// Parses a chunk on the assumption that it begins between events.
fn parse(piece: &mut Piece, rows: &mut RowBuilder<'_>) {
    let Piece { chunk, batch, end, .. } = piece;
    batch.clear();
    *end = chunk.starts_event.then(|| {
        let run = Run {
            bytes: chunk.bytes(),
            start: 0,
            offset: chunk.offset,
            gap: Gap::Comma,
            is_last: chunk.is_last,
        };
        run.parse(rows, batch)
    });
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The buffers in circulation; their number bounds the memory of chunks in flight.
struct Pool {
    /// The free ones, the last used behind the others; `None` once the pool is closed.
    free: Mutex<Option<Vec<Box<Piece>>>>,
    returned: Condvar,
}

impl Pool {
    fn new(buffers: usize) -> Self {
        let free = (0..buffers).map(|_| Box::default()).collect();
        Self { free: Mutex::new(Some(free)), returned: Condvar::new() }
    }

    /// A free buffer; waits for one, `None` once the pool is closed.
    ///
    /// The last that `thread` used, if it is free: in the caches of that processor it costs least to write.
    fn take(&self, thread: usize) -> Option<Box<Piece>> {
        let mut free = guard(&self.free);
        loop {
            let pieces = free.as_mut()?;
            let own = pieces.iter().rposition(|piece| piece.thread == thread);
            if let Some(at) = own.or(pieces.len().checked_sub(1)) {
                let mut piece = pieces.remove(at);
                piece.thread = thread;
                return Some(piece);
            }
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, piece: Box<Piece>) {
        if let Some(pieces) = &mut *guard(&self.free) {
            pieces.push(piece);
        }
        self.returned.notify_one();
    }

    /// Wakes the threads that wait; no buffers are handed out any more.
    fn close(&self) {
        *guard(&self.free) = None;
        self.returned.notify_all();
    }
}
