//! What the reader knows of the tables it reads.

use super::builder::Builder;
use super::capture::Feature;
use super::cells::Cells;
use crate::schema::Tables;

/// How much depends on a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Without it a row says nothing.
    Required,
    /// Every version of nsys that this reader knows writes it.
    Usual,
    /// It came with some version of schema 3.
    Newer,
}

/// A column that is read if it is there.
pub(super) struct Wanted {
    pub(super) name: &'static str,
    /// `table.column`, for findings.
    pub(super) full_name: &'static str,
    pub(super) need: Need,
    /// Columns of the trace that it serves; empty if rows cannot do without it.
    pub(super) serves: &'static [&'static str],
}

/// A table of events.
pub(super) struct Source {
    pub(super) name: &'static str,
    /// Table of the trace that its rows go into.
    pub(super) feeds: &'static str,
    pub(super) columns: &'static [Wanted],
    /// Columns of which a row tells whether any has a value, as its last cell.
    pub(super) flagged: &'static [&'static str],
    /// What a recording must be set up with to have this table.
    pub(super) recorded_with: Feature,
    /// Adds a row to the tables; false if it had to be dropped.
    pub(super) push: fn(&mut Builder<'_, '_>, &mut Cells<'_, '_>, &mut Tables) -> bool,
}

impl Source {
    /// The kind of GPU work that the table holds, if it holds any.
    pub(super) fn kind(&self) -> Option<&'static str> {
        match self.name {
            "CUPTI_ACTIVITY_KIND_KERNEL" => Some("kernel"),
            "CUPTI_ACTIVITY_KIND_MEMCPY" => Some("memcpy"),
            "CUPTI_ACTIVITY_KIND_MEMSET" => Some("memset"),
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" => Some("graph"),
            _ => None,
        }
    }

    /// Position of the flag among the cells of a row.
    pub(super) fn flag(&self) -> usize {
        self.columns.len() + 1
    }
}

/// Declares the columns of a table and the positions at which its rows have them.
macro_rules! source {
    (
        $(#[doc = $doc:literal])+
        $source:ident: $table:literal, $feeds:ident, $option:ident, $push:path;
        $( $cell:ident = $column:literal $need:ident $(for [$($serves:ident)+])?, )*
    ) => {
        source! {
            $(#[doc = $doc])+
            $source: $table, $feeds, $option, $push, flag [];
            $( $cell = $column $need $(for [$($serves)+])?, )*
        }
    };
    (
        $(#[doc = $doc:literal])+
        $source:ident: $table:literal, $feeds:ident, $option:ident, $push:path, flag [$($flag:literal),*];
        $( $cell:ident = $column:literal $need:ident $(for [$($serves:ident)+])?, )*
    ) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "names of constants")]
        enum Position { $( $cell, )* }
        // Cell 0 is the rowid.
        $( const $cell: usize = Position::$cell as usize + 1; )*

        $(#[doc = $doc])+
        pub(in crate::nsys) static $source: $crate::nsys::source::Source = $crate::nsys::source::Source {
            name: $table,
            feeds: stringify!($feeds),
            columns: &[$( $crate::nsys::source::Wanted {
                name: $column,
                full_name: concat!($table, ".", $column),
                need: $crate::nsys::source::Need::$need,
                serves: &[$($(stringify!($serves)),+)?],
            }, )*],
            flagged: &[$($flag),*],
            recorded_with: $crate::nsys::capture::Feature::$option,
            push: $push,
        };
    };
}

pub(super) use source;

/// Every table of events, in the order in which rows are numbered.
pub(super) fn all() -> [&'static Source; 18] {
    use super::{calls, copies, faults, kernels, memory, metrics, nvtx, spans, syncs};
    [
        &kernels::SOURCE,
        &copies::memcpy::SOURCE,
        &copies::memset::SOURCE,
        &kernels::graphs::SOURCE,
        &calls::SOURCE,
        &syncs::SOURCE,
        &syncs::events::SOURCE,
        &nvtx::SOURCE,
        &memory::SOURCE,
        &metrics::SOURCE,
        &spans::osrt::SOURCE,
        &spans::overhead::SOURCE,
        &spans::profiler::SOURCE,
        &spans::graphs::SOURCE,
        &spans::graph_nodes::SOURCE,
        &spans::diagnostics::SOURCE,
        &faults::on_cpu::SOURCE,
        &faults::on_gpu::SOURCE,
    ]
}
