//! What a caller can choose when reading.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Called from time to time with bytes done and bytes in all (0 if unknown).
/// Returning `false` stops the reading with [`crate::ErrorKind::Interrupted`].
pub type Progress = Arc<dyn Fn(u64, u64) -> bool + Send + Sync>;

/// Options of [`crate::read`].
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// Stop at the first loss instead of counting it.
    pub strict: bool,
    /// Threads to parse with; `None` takes every core.
    pub threads: Option<usize>,
    /// Name of the annotation that delimits steps, or a pattern: `*` and `?` as in file names, or a regular expression
    /// between two `/`; `None` takes `ProfilerStep#N`.
    pub step_range: Option<String>,
    /// The tables that are wanted, each with its wanted columns or none for all; `None` wants every
    /// table. The others are empty, other columns may be null, and a database is read only where it
    /// feeds what is wanted. Links to tables of a database that are not wanted are null.
    pub tables: Option<BTreeMap<String, Vec<String>>>,
    /// Whether only calls that launched GPU work are wanted, and NVTX ranges that enclose one of them.
    /// The others may be missing. Needs the tables `gpu_ops` and `launches`.
    pub only_launching: bool,
    /// Which events are wanted; links and all that follows from others are those of these events alone.
    pub filter: Filter,
    /// The rank that is wanted of a file of several; `None` for all.
    pub rank: Option<i32>,
    /// Traces in which the graphs were captured that the trace replays.
    pub captures: Vec<PathBuf>,
    /// Whether a capture that cannot be read is a finding, and no error.
    pub captures_are_found: bool,
    /// Bytes handed to a thread at once; `None` takes a size that suits the caches.
    pub chunk_bytes: Option<usize>,
    /// Progress callback.
    pub progress: Option<Progress>,
}

/// Which events are wanted. An event that reaches into a time stays whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// First and last moment on the trace's clock, ns; `None` is open.
    pub time: (Option<i64>, Option<i64>),
    /// An NVTX range or annotation, as `range[@domain][/index]`: the events of its thread in it, and the GPU
    /// work that these launched. A range that was started and not pushed takes all threads of its process.
    pub nvtx: Option<String>,
    /// Processes; empty for all.
    pub processes: Vec<i64>,
    /// Whether what belongs to no process stays when processes are named.
    pub of_no_process: bool,
    /// GPUs, as `device` numbers them; empty for all. Calls whose work is all on others go with it.
    pub devices: Vec<i32>,
}

impl Filter {
    /// Whether every event is wanted.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ReadOptions {
    /// Whether a table is wanted.
    pub(crate) fn wants(&self, table: &str) -> bool {
        self.tables.as_ref().is_none_or(|tables| tables.contains_key(table))
    }

    /// Has columns of a table read that something wanted is found from.
    pub(crate) fn add(&mut self, table: &str, columns: &[&str]) {
        let Some(tables) = &mut self.tables else { return };
        let columns = columns.iter().map(|&column| column.to_owned());
        match tables.get_mut(table) {
            // Every column is wanted.
            Some(wanted) if wanted.is_empty() => {}
            Some(wanted) => wanted.extend(columns),
            None => drop(tables.insert(table.to_owned(), columns.collect())),
        }
    }

    /// Whether anything is wanted that follows from what several rows have in common.
    pub(crate) fn wants_links(&self) -> bool {
        const DERIVED: [&str; 7] =
            ["launch_row", "op_row", "range_row", "link", "step", "is_communication", "activity"];
        let Some(tables) = &self.tables else { return true };
        tables.iter().any(|(table, columns)| match table.as_str() {
            "gpu_ops" => {
                columns.is_empty() || columns.iter().any(|column| DERIVED.contains(&column.as_str()))
            }
            "devices" | "diagnostics" => false,
            _ => true,
        })
    }

    /// Whether steps are found: only of the host and the GPUs together can anybody tell them.
    pub(crate) fn wants_steps(&self) -> bool {
        ["launches", "gpu_ops", "ops", "ranges"].iter().all(|table| self.wants(table))
    }

    /// Whether it is wanted what rows do.
    pub(crate) fn wants_activities(&self) -> bool {
        let is_asked = |table| self.wants(table) && self.wants_column(table, "activity");
        self.wants_steps() || ["ops", "launches", "gpu_ops"].into_iter().any(is_asked)
    }

    /// Whether anything is wanted that captures of graphs tell.
    pub(crate) fn wants_captures(&self) -> bool {
        const TOLD: [&str; 3] = ["captured_node_row", "captured_op_row", "match"];
        ["captured_graphs", "captured_ops", "captured_nodes"].iter().any(|table| self.wants(table))
            || (self.wants("gpu_ops") && TOLD.iter().any(|column| self.wants_column("gpu_ops", column)))
    }

    /// Whether a column of a wanted table is wanted.
    pub(crate) fn wants_column(&self, table: &str, column: &str) -> bool {
        let columns = self.tables.as_ref().and_then(|tables| tables.get(table));
        columns.is_none_or(|columns| columns.is_empty() || columns.iter().any(|wanted| wanted == column))
    }
}
