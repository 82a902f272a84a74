//! What a thread needs to turn rows of the database into rows of the trace.

use hashbrown::HashMap;
use rusqlite::Connection;
use std::sync::{Mutex, PoisonError};

use super::catalog::Catalog;
use super::cells::Cells;
use super::labels::{DIRECTIONS, SYNC_KINDS, listed};
use super::texts::{Strings, Texts};
use crate::schema::{ExtraArgRow, Symbol, SymbolTable, Tables};
use crate::tracks::{Ident, TrackKey, TrackTable};

/// A program that writes databases, and what is known of one before its events are read.
pub(crate) trait Recorder: Sync + Sized + 'static {
    /// What a recording must be set up with to have a table.
    type Feature: Copy + Sync;
    /// What one thread keeps beside its texts and tracks.
    type Thread<'c>;
    /// The table of texts, and its column of numbers.
    const STRINGS: (&'static str, &'static str);

    /// What a thread that reads through `connection` begins with.
    fn thread<'c>(&self, connection: &'c Connection) -> Self::Thread<'c>;
}

/// What all threads share.
#[derive(Default)]
pub(crate) struct Shared {
    symbols: Mutex<SymbolTable>,
    tracks: Mutex<TrackTable>,
}

impl Shared {
    /// The texts and tracks that the threads met.
    pub(crate) fn into_parts(self) -> (SymbolTable, TrackTable) {
        let symbols = self.symbols.into_inner().unwrap_or_else(PoisonError::into_inner);
        (symbols, self.tracks.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Turns rows into rows; one per thread.
pub(crate) struct Builder<'c, 's, R: Recorder> {
    pub(crate) texts: Texts<'s>,
    pub(crate) strings: Strings<'c>,
    pub(crate) tracks: Tracks<'s>,
    pub(crate) recorder: &'s R,
    pub(crate) thread: R::Thread<'c>,
    /// Texts that the reader itself puts into tables, by what they stand for.
    labels: HashMap<(&'static str, i64), Symbol>,
}

impl<'c, 's, R: Recorder> Builder<'c, 's, R> {
    pub(crate) fn new(
        connection: &'c Connection,
        catalog: &Catalog,
        shared: &'s Shared,
        recorder: &'s R,
    ) -> Self {
        let mut texts = Texts::new(&shared.symbols);
        let strings = Strings::new(connection, catalog, R::STRINGS, &mut texts);
        Self {
            strings,
            tracks: Tracks { shared: &shared.tracks, known: HashMap::new(), last: None },
            thread: recorder.thread(connection),
            recorder,
            texts,
            labels: HashMap::new(),
        }
    }

    /// The text that a cell refers to by number.
    #[inline]
    pub(crate) fn string(&mut self, cells: &mut Cells<'_, '_>, cell: usize) -> Option<Symbol> {
        self.strings.cell(&mut self.texts, cells, cell)
    }

    /// The text that a cell of every row refers to.
    #[inline]
    pub(crate) fn usual_string(&mut self, cells: &mut Cells<'_, '_>, cell: usize) -> Option<Symbol> {
        cells.usual(cell)?;
        self.string(cells, cell)
    }

    /// A text of the reader's own.
    #[inline]
    pub(crate) fn label(&mut self, text: &'static str) -> Symbol {
        self.coded(text, 0, |_| text.to_owned())
    }

    /// The text for a code; `group` tells codes of one kind from those of another.
    #[inline]
    pub(crate) fn coded(&mut self, group: &'static str, code: i64, text: impl Fn(i64) -> String) -> Symbol {
        let Self { labels, texts, .. } = self;
        *labels.entry((group, code)).or_insert_with(|| texts.intern_clean(&text(code)))
    }

    /// The kind of a synchronisation.
    pub(crate) fn sync_kind(&mut self, code: i64) -> Symbol {
        self.coded("sync", code, |code| listed(&SYNC_KINDS, code, "sync type"))
    }

    /// A kind of memory, by its number among `kinds`.
    pub(crate) fn memory_kind(&mut self, kinds: &[&str], code: Option<i64>) -> Option<Symbol> {
        code.map(|code| self.coded("memory kind", code, |code| listed(kinds, code, "kind")))
    }

    /// The direction of a copy.
    pub(crate) fn copy_kind(&mut self, code: i64) -> Symbol {
        self.coded("copy kind", code, |code| listed(&DIRECTIONS, code, "kind"))
    }

    /// The name of a copy, which tells its direction.
    pub(crate) fn copy_name(&mut self, code: Option<i64>) -> Symbol {
        let named = |code| format!("[CUDA memcpy {}]", listed(&DIRECTIONS, code, "kind"));
        match code {
            Some(code) => self.coded("copy", code, named),
            None => self.label("[CUDA memcpy]"),
        }
    }

    /// Adds a number that has no column of its own.
    pub(crate) fn argument(
        &mut self,
        cells: &Cells<'_, '_>,
        tables: &mut Tables,
        key: &'static str,
        value: i64,
    ) {
        let (key, value) = (self.label(key), self.texts.intern_clean(&value.to_string()));
        tables.extra_args.push(ExtraArgRow { row: cells.number, key, value });
    }
}

/// Numbers the tracks that one thread of the reader meets.
pub(crate) struct Tracks<'s> {
    shared: &'s Mutex<TrackTable>,
    known: HashMap<TrackKey, u32>,
    last: Option<(TrackKey, u32)>,
}

impl Tracks<'_> {
    /// The number of a track.
    #[inline]
    pub(crate) fn number(&mut self, key: TrackKey) -> u32 {
        if let Some((known, track)) = self.last
            && known == key
        {
            return track;
        }
        let Self { shared, known, .. } = self;
        let new = || shared.lock().unwrap_or_else(PoisonError::into_inner).number(key);
        let track = *known.entry(key).or_insert_with(new);
        self.last = Some((key, track));
        track
    }

    /// The track of a process, and of one of its threads.
    #[inline]
    pub(crate) fn of(&mut self, process: Option<i64>, thread: Option<i64>) -> u32 {
        let ident = |id: Option<i64>| id.map_or(Ident::Missing, Ident::Int);
        self.number((ident(process), ident(thread)))
    }

    /// The track of anything that has a name and no process.
    pub(crate) fn named(&mut self, name: Symbol) -> u32 {
        self.number((Ident::Text(name), Ident::Missing))
    }
}
