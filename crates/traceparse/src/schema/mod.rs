//! The tables of a trace, and the columns they are made of.
//!
//! Nothing here knows a file format: readers push rows, the link stage fills the derived
//! columns, and [`Tables::into_batches`] exports everything as Arrow.

mod captures;
mod column;
mod context;
mod events;
mod gpu;
mod host;
mod symbols;
mod table;
mod values;

pub use captures::*;
pub use column::{Cell, Column};
pub use context::*;
pub use events::*;
pub use gpu::*;
pub use host::*;
pub use symbols::{DictionaryBuilder, Symbol, SymbolTable};
pub(crate) use table::BatchBuilder;
pub use table::{ColumnSpec, Role, Table};

use arrow_array::RecordBatch;

use crate::options::ReadOptions;

/// Lists the tables, and says what is done to every table alike.
macro_rules! tables {
    ($( $field:ident: $table:ident, )*) => {
        /// Every table of a trace. A table that the source does not have is empty.
        #[derive(Debug, Default)]
        pub struct Tables {
            $( #[doc = concat!("See [`", stringify!($table), "`].")] pub $field: $table, )*
        }

        impl Tables {
            /// Names of all tables, in the order of [`Tables::into_batches`].
            pub const NAMES: &'static [&'static str] = &[$( <$table as Table>::NAME, )*];

            /// Exports every table, with its name.
            pub fn into_batches(self, symbols: &SymbolTable) -> Vec<(&'static str, RecordBatch)> {
                vec![$( (<$table as Table>::NAME, self.$field.into_batch(symbols)), )*]
            }

            /// Moves the rows of `other` behind the rows of `self`, table by table.
            pub(crate) fn append(&mut self, other: &mut Self) {
                $( self.$field.append(&mut other.$field); )*
            }

            /// Removes every row and keeps the memory.
            pub(crate) fn clear(&mut self) {
                $( self.$field.clear(); )*
            }

            /// Empties the tables that are not wanted.
            pub(crate) fn keep_tables(&mut self, options: &ReadOptions) {
                $( if !options.wants(<$table as Table>::NAME) {
                    self.$field = <$table>::default();
                } )*
            }

            /// Makes columns null that are not wanted.
            pub(crate) fn keep_columns(&mut self, options: &ReadOptions) {
                $( self.$field.keep_only(|column| options.wants_column(<$table as Table>::NAME, column)); )*
            }

            /// Makes room for `factor` times the rows that the tables have.
            pub(crate) fn reserve_times(&mut self, factor: f64) {
                $( self.$field.reserve_times(factor); )*
            }

            /// Adds `base` to the row number of every event.
            pub(crate) fn shift_rows(&mut self, base: u32) {
                $( self.$field.change_rows(|row| row.wrapping_add(base)); )*
            }

            /// Hands the row number of every event to `mark`.
            pub(crate) fn mark_rows(&self, mark: &mut impl FnMut(u32)) {
                $( self.$field.mark_rows(&mut *mark); )*
            }

            /// Puts the events of each table into the order of the source.
            pub(crate) fn sort_rows(&mut self) {
                $( self.$field.sort_rows(); )*
            }

            /// A number for a row that no event has.
            pub(crate) fn next_row(&self) -> u32 {
                let mut next = 0_u32;
                self.mark_rows(&mut |row| next = next.max(row.saturating_add(1)));
                next
            }

            /// Returns, for each of `tracks`, whether an event is drawn on it.
            pub(crate) fn used_tracks(&self, tracks: usize) -> Vec<bool> {
                let mut used = vec![false; tracks];
                $( self.$field.mark_tracks(&mut |track| used[track as usize] = true); )*
                used
            }

            /// Gives every track the number that `renumbered` has at its old number.
            pub(crate) fn renumber_tracks(&mut self, renumbered: &[u32]) {
                $( self.$field.change_tracks(|track| renumbered[track as usize]); )*
            }

            /// Name, description and columns of every table.
            pub fn describe() -> Vec<(&'static str, String, Vec<ColumnSpec>)> {
                vec![$( (<$table as Table>::NAME, <$table as Table>::doc(), <$table as Table>::columns()), )*]
            }
        }
    };
}

impl Tables {
    /// Splits the events into `parts` parts. `part` gives the part of each row; what is known about the rows
    /// goes with them.
    pub(crate) fn split(&self, parts: usize, part: impl Fn(u32) -> Option<usize>) -> Vec<Self> {
        let mut found: Vec<Self> = (0..parts).map(|_| Self::default()).collect();
        macro_rules! split {
            ($($table:ident),*) => { $(
                let mut indices = vec![Vec::new(); parts];
                for (index, part) in self.$table.row.values().iter().map(|&row| part(row)).enumerate() {
                    if let Some(part) = part {
                        indices[part].push(index);
                    }
                }
                for (found, indices) in found.iter_mut().zip(&indices) {
                    found.$table = self.$table.chosen(indices);
                }
            )* };
        }
        split!(
            ops,
            launches,
            gpu_ops,
            python,
            ranges,
            gpu_annotations,
            syncs,
            memory,
            collectives,
            counters,
            instants,
            flows,
            spans,
            metadata,
            extra_args
        );
        found
    }
}

tables! {
    ops: Ops,
    launches: Launches,
    gpu_ops: GpuOps,
    untimed_gpu_ops: UntimedGpuOps,
    untimed_events: UntimedEvents,
    python: PythonFrames,
    ranges: Ranges,
    gpu_annotations: GpuAnnotations,
    syncs: Syncs,
    memory: MemoryEvents,
    collectives: Collectives,
    counters: Counters,
    instants: Instants,
    flows: Flows,
    spans: Spans,
    metadata: MetadataEvents,
    extra_args: ExtraArgs,
    steps: Steps,
    gpu_steps: GpuSteps,
    devices: Devices,
    process_groups: ProcessGroups,
    captured_graphs: CapturedGraphs,
    captured_ops: CapturedOps,
    captured_nodes: CapturedNodes,
    threads: Threads,
    diagnostics: Diagnostics,
}
