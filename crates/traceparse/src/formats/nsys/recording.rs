//! What is known of a recording before its events are read.

use hashbrown::HashMap;
use rusqlite::{Connection, Statement};

use super::capture::Feature;
use super::events::EventIndex;
use super::identity::{GlobalId, Processes};
use super::launching::{Launching, Positions};
use super::machine::Machine;
use super::names::{Named, Names};
use super::payloads::Payloads;
use crate::formats::sqlite::{builder, source};
use crate::metric_names::Scale;
use crate::options::ReadOptions;
use crate::schema::Symbol;

/// A recording of nsys.
pub(super) struct Recording {
    pub(super) processes: Processes,
    pub(super) machine: Machine,
    pub(super) events: EventIndex,
    pub(super) names: Names,
    /// End of the session, for ranges without an end.
    pub(super) session_end: Option<i64>,
    pub(super) wanted: ColumnFlags,
    /// Calls that launched GPU work, where only those are wanted.
    pub(super) launching: Option<Launching>,
    pub(super) payloads: Payloads,
    /// Fetches the payload of an NVTX event.
    pub(super) payload_sql: Option<String>,
}

/// Columns that follow from what is read anyway, and whether they are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnFlags {
    pub(super) gpu_pid: bool,
    pub(super) shared_memory: bool,
    pub(super) copy_kind: bool,
    pub(super) call_category: bool,
    pub(super) api_version: bool,
}

impl ColumnFlags {
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

/// How a GPU metric is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) name: Symbol,
    pub(super) unit: Option<Symbol>,
    pub(super) scale: Scale,
}

/// What one thread keeps beside its texts and tracks.
pub(super) struct Thread<'c> {
    pub(super) names: HashMap<Named, Symbol>,
    pub(super) api_names: HashMap<Symbol, (Symbol, Option<i32>)>,
    pub(super) payload: Option<Statement<'c>>,
    /// How each GPU metric is shown, by type and metric.
    pub(super) metrics: HashMap<(Option<i64>, i64), Shown>,
    pub(super) positions: Positions,
}

/// A table of nsys.
pub(super) type Source = source::Source<Recording>;
/// Turns rows of nsys into rows of the trace.
pub(super) type Builder<'c, 's> = builder::Builder<'c, 's, Recording>;

impl builder::Recorder for Recording {
    type Feature = Feature;
    type Thread<'c> = Thread<'c>;
    const STRINGS: (&'static str, &'static str) = ("StringIds", "id");

    fn thread<'c>(&self, connection: &'c Connection) -> Thread<'c> {
        Thread {
            names: HashMap::new(),
            api_names: HashMap::new(),
            payload: self.payload_sql.as_deref().and_then(|sql| connection.prepare(sql).ok()),
            metrics: HashMap::new(),
            positions: Positions::default(),
        }
    }
}

impl Builder<'_, '_> {
    /// The process of a global process or thread id.
    #[inline]
    pub(super) fn pid(&self, global_id: Option<i64>) -> Option<i64> {
        global_id.map(|id| self.recorder.processes.pid(GlobalId(id)))
    }

    /// The track of a thread.
    #[inline]
    pub(super) fn thread_track(&mut self, global_tid: Option<i64>) -> u32 {
        let pid = self.pid(global_tid);
        self.tracks.of(pid, global_tid.map(|id| GlobalId(id).tid()))
    }

    /// The track of a process as a whole.
    pub(super) fn process_track(&mut self, global_pid: Option<i64>) -> u32 {
        let pid = self.pid(global_pid);
        self.tracks.of(pid, None)
    }
}
