//! What a caller can choose when reading.

use std::collections::BTreeMap;
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
    /// Name of the annotation that delimits steps; `None` takes `ProfilerStep#N`.
    pub step_range: Option<String>,
    /// The tables that are wanted, each with its wanted columns or none for all; `None` wants every
    /// table. The others are empty, other columns may be null, and a database is read only where it
    /// feeds what is wanted. Links to tables of a database that are not wanted are null.
    pub tables: Option<BTreeMap<String, Vec<String>>>,
    /// Kinds of GPU work that are wanted (`kernel`, `memcpy`, `memset`, `graph`); `None` wants all.
    /// The others may be missing.
    pub kinds: Option<Vec<String>>,
    /// Whether only calls that launched GPU work are wanted, and NVTX ranges that enclose one of them.
    /// The others may be missing. Needs the tables `gpu_ops` and `launches`.
    pub only_launching: bool,
    /// Bytes handed to a thread at once; `None` takes a size that suits the caches.
    pub chunk_bytes: Option<usize>,
    /// Progress callback.
    pub progress: Option<Progress>,
}

impl ReadOptions {
    /// Whether a table is wanted.
    pub(crate) fn wants(&self, table: &str) -> bool {
        self.tables.as_ref().is_none_or(|tables| tables.contains_key(table))
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

    /// Whether a kind of GPU work is wanted.
    pub(crate) fn wants_kind(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|wanted| wanted == kind))
    }

    /// Whether a column of a wanted table is wanted.
    pub(crate) fn wants_column(&self, table: &str, column: &str) -> bool {
        let columns = self.tables.as_ref().and_then(|tables| tables.get(table));
        columns.is_none_or(|columns| columns.is_empty() || columns.iter().any(|wanted| wanted == column))
    }
}
