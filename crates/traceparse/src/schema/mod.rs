//! The tables of a trace, one per file, and the columns they are made of.
//!
//! Nothing here knows a file format: readers push rows, the link stage fills the derived
//! columns, and [`Tables::into_batches`] exports everything as Arrow.

mod column;
mod symbols;
mod table;

mod collectives;
mod counters;
mod devices;
mod diagnostics;
mod extra_args;
mod flows;
mod gpu_annotations;
mod gpu_ops;
mod instants;
mod launches;
mod memory;
mod metadata;
mod ops;
mod process_groups;
mod python;
mod ranges;
mod spans;
mod steps;
mod syncs;
mod threads;

pub use collectives::{CollectiveRow, Collectives};
pub use column::{Cell, Column};
pub use counters::{CounterRow, Counters};
pub use devices::{DeviceRow, Devices};
pub use diagnostics::{DiagnosticRow, Diagnostics};
pub use extra_args::{ExtraArgRow, ExtraArgs};
pub use flows::{FlowRow, Flows};
pub use gpu_annotations::{GpuAnnotationRow, GpuAnnotations};
pub use gpu_ops::{GpuOpRow, GpuOps};
pub use instants::{InstantRow, Instants};
pub use launches::{LaunchRow, Launches};
pub use memory::{MemoryEvents, MemoryRow};
pub use metadata::{MetadataEvents, MetadataRow};
pub use ops::{OpRow, Ops};
pub use process_groups::{ProcessGroupRow, ProcessGroups};
pub use python::{PythonFrames, PythonRow};
pub use ranges::{RangeRow, Ranges};
pub use spans::{SpanRow, Spans};
pub use steps::{StepRow, Steps};
pub use symbols::{DictionaryBuilder, Symbol, SymbolTable};
pub use syncs::{SyncRow, Syncs};
pub(crate) use table::BatchBuilder;
pub use table::{ColumnSpec, Table};
pub use threads::{ThreadRow, Threads};

use arrow_array::RecordBatch;

use crate::options::ReadOptions;

/// Declares [`Tables`] and what is done to every table alike.
macro_rules! tables {
    ($( $field:ident : $table:ident, )*) => {
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

            /// Name, description and columns of every table.
            pub fn describe() -> Vec<(&'static str, String, Vec<ColumnSpec>)> {
                vec![$( (<$table as Table>::NAME, <$table as Table>::doc(), <$table as Table>::columns()), )*]
            }
        }
    };
}

tables! {
    ops: Ops,
    launches: Launches,
    gpu_ops: GpuOps,
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
    devices: Devices,
    process_groups: ProcessGroups,
    threads: Threads,
    diagnostics: Diagnostics,
}

/// Applies an expression to a column of several tables.
macro_rules! for_tables {
    ($tables:expr, $column:ident, $change:expr, $($table:ident),+) => {
        $( $tables.$table.$column.map_in_place($change); )+
    };
}

impl Tables {
    /// Adds `base` to the row number of every event.
    pub(crate) fn shift_rows(&mut self, base: u32) {
        let shift = |row: u32| row.wrapping_add(base);
        for_tables!(
            self,
            row,
            shift,
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
    }

    /// For each of so many tracks, whether an event is drawn on it.
    pub(crate) fn used_tracks(&self, tracks: usize) -> Vec<bool> {
        let mut used = vec![false; tracks];
        macro_rules! mark {
            ($($table:ident),+) => {
                $( self.$table.track.values().iter().for_each(|&track| used[track as usize] = true); )+
            };
        }
        mark!(ops, launches, python, ranges, memory, counters, instants, flows, spans, metadata);
        used
    }

    /// Gives every track the number that `renumbered` has at its old number.
    pub(crate) fn renumber_tracks(&mut self, renumbered: &[u32]) {
        let change = |track: u32| renumbered[track as usize];
        for_tables!(
            self, track, change, ops, launches, python, ranges, memory, counters, instants, flows, spans,
            metadata
        );
    }
}
