//! What a thread needs to turn rows of the database into rows of the trace.

use hashbrown::HashMap;
use rusqlite::{Connection, Statement};
use std::sync::Mutex;

use super::catalog::Catalog;
use super::cells::Cells;
use super::identity::{GlobalId, Processes, Tracks};
use super::launching::{Launching, Positions};
use super::machine::Machine;
use super::nvtx;
use super::strings::{Strings, Texts};
use super::syncs::EventIndex;
use crate::options::ReadOptions;
use crate::schema::{ExtraArgRow, Symbol, SymbolTable, Tables};
use crate::tracks::TrackTable;

/// What all threads share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) symbols: Mutex<SymbolTable>,
    pub(super) tracks: Mutex<TrackTable>,
    pub(super) nvtx: Mutex<nvtx::Names>,
}

/// Columns that follow from what is read anyway, and whether they are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeps {
    pub(super) gpu_pid: bool,
    pub(super) shared_memory: bool,
    pub(super) copy_kind: bool,
    pub(super) call_category: bool,
    pub(super) api_version: bool,
}

impl Keeps {
    /// What `options` want. The process of work leads to its call.
    pub(super) fn new(options: &ReadOptions) -> Self {
        Self {
            gpu_pid: options.wants_column("gpu_ops", "pid") || options.wants("launches"),
            shared_memory: options.wants_column("gpu_ops", "shared_memory_bytes"),
            copy_kind: options.wants_column("gpu_ops", "copy_kind"),
            call_category: options.wants_column("launches", "category"),
            api_version: options.wants_column("launches", "api_version"),
        }
    }
}

/// What is known before the events are read.
pub(super) struct Context {
    pub(super) catalog: Catalog,
    pub(super) processes: Processes,
    pub(super) machine: Machine,
    pub(super) events: EventIndex,
    /// End of the session, for ranges without an end.
    pub(super) session_end: Option<i64>,
    pub(super) keeps: Keeps,
    /// Calls that launched GPU work, where only those are wanted.
    pub(super) launching: Option<Launching>,
}

/// Turns rows into rows; one per thread.
pub(super) struct Builder<'c, 's> {
    pub(super) texts: Texts<'s>,
    pub(super) strings: Strings<'c>,
    pub(super) tracks: Tracks<'s>,
    pub(super) context: &'s Context,
    pub(super) nvtx: nvtx::LocalNames<'s>,
    pub(super) payload: Option<Statement<'c>>,
    pub(super) labels: Labels,
    pub(super) positions: Positions,
    triples: HashMap<[i64; 3], Symbol>,
    names: HashMap<Symbol, (Symbol, Option<i32>)>,
}

/// Texts that the reader itself puts into tables, by what they stand for.
#[derive(Default)]
pub(super) struct Labels {
    known: HashMap<(&'static str, i64), Symbol>,
}

impl<'c, 's> Builder<'c, 's> {
    pub(super) fn new(connection: &'c Connection, shared: &'s Shared, context: &'s Context) -> Self {
        let mut texts = Texts::new(&shared.symbols);
        let strings = Strings::new(connection, &context.catalog, &mut texts);
        Self {
            strings,
            tracks: Tracks::new(&shared.tracks, context.processes),
            nvtx: nvtx::LocalNames::new(&shared.nvtx),
            payload: nvtx::payload_statement(connection, &context.catalog),
            context,
            texts,
            labels: Labels::default(),
            positions: Positions::default(),
            triples: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// The text that a cell refers to by number.
    #[inline]
    pub(super) fn string(&mut self, cells: &mut Cells<'_, '_>, cell: usize) -> Option<Symbol> {
        self.strings.cell(&mut self.texts, cells, cell)
    }

    /// The text that a cell of every row refers to.
    #[inline]
    pub(super) fn usual_string(&mut self, cells: &mut Cells<'_, '_>, cell: usize) -> Option<Symbol> {
        cells.usual(cell)?;
        self.string(cells, cell)
    }

    /// A text of the reader's own.
    #[inline]
    pub(super) fn label(&mut self, text: &'static str) -> Symbol {
        self.coded(text, 0, |_| text.to_owned())
    }

    /// The text for a code; `group` tells codes of one kind from those of another.
    #[inline]
    pub(super) fn coded(&mut self, group: &'static str, code: i64, text: impl Fn(i64) -> String) -> Symbol {
        let Self { labels, texts, .. } = self;
        *labels.known.entry((group, code)).or_insert_with(|| texts.intern(&text(code)))
    }

    /// Adds a number that has no column of its own.
    pub(super) fn argument(
        &mut self,
        cells: &Cells<'_, '_>,
        tables: &mut Tables,
        key: &'static str,
        value: i64,
    ) {
        let (key, value) = (self.label(key), self.texts.intern(&value.to_string()));
        tables.extra_args.push(ExtraArgRow { row: cells.number, key, value });
    }

    /// Three numbers as JSON text.
    #[inline]
    pub(super) fn triple(&mut self, cells: &mut Cells<'_, '_>, from: [usize; 3]) -> Option<Symbol> {
        let [x, y, z] = from.map(|cell| cells.int(cell));
        let triple = [x?, y?, z?];
        let Self { triples, texts, .. } = self;
        let intern = || texts.intern(&format!("[{}, {}, {}]", triple[0], triple[1], triple[2]));
        Some(*triples.entry(triple).or_insert_with(intern))
    }

    /// The name of an API function without the version that nsys appends, and the version.
    #[inline]
    pub(super) fn api_name(&mut self, name: Symbol) -> (Symbol, Option<i32>) {
        let Self { names, texts, .. } = self;
        *names.entry(name).or_insert_with(|| texts.without_version(name))
    }

    /// The process of a cell's global process id.
    #[inline]
    pub(super) fn pid(&self, global_pid: Option<i64>) -> Option<i64> {
        global_pid.map(|id| self.context.processes.pid(GlobalId(id)))
    }
}
