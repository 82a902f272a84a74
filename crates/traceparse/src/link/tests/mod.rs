//! Tiny traces and what follows from them.

mod launching;
mod random;
mod scale;
mod stepping;
mod tracks;
mod training;

use std::ops::Range;

use super::link;
use crate::options::ReadOptions;
use crate::schema::{Column, FlowRow, GpuOpRow, LaunchRow, OpRow, PythonRow, Symbol};
use crate::stats::Code;
use crate::trace::Trace;
use crate::tracks::Ident;

/// A builder of tiny traces. Rows are numbered in order of adding; all threads are of process 1.
#[derive(Default)]
struct Tiny {
    trace: Trace,
    rows: u32,
}

impl Tiny {
    fn text(&mut self, text: &str) -> Symbol {
        self.trace.symbols.intern(text)
    }

    fn track(&mut self, tid: i64) -> u32 {
        self.trace.tracks.number((Ident::Int(1), Ident::Int(tid)))
    }

    fn next_row(&mut self) -> u32 {
        self.rows += 1;
        self.rows - 1
    }

    fn op(&mut self, name: &str, tid: i64, span: Range<i64>, change: impl FnOnce(&mut OpRow)) -> u32 {
        let category = if name.starts_with("ProfilerStep") { "user_annotation" } else { "cpu_op" };
        let mut row = OpRow {
            row: self.next_row(),
            name: Some(self.text(name)),
            category: Some(self.text(category)),
            track: self.track(tid),
            start_ns: span.start,
            dur_ns: Some(span.end - span.start),
            ..Default::default()
        };
        change(&mut row);
        self.trace.tables.ops.push(row.clone());
        row.row
    }

    /// A runtime call with a correlation id and an external id, 0 for none.
    fn launch(&mut self, tid: i64, span: Range<i64>, correlation: i64, external_id: i64) -> u32 {
        let row = LaunchRow {
            row: self.next_row(),
            name: Some(self.text("cudaLaunchKernel")),
            category: Some(self.text("cuda_runtime")),
            track: self.track(tid),
            start_ns: span.start,
            dur_ns: Some(span.end - span.start),
            correlation: Some(correlation).filter(|&id| id != 0),
            external_id: Some(external_id).filter(|&id| id != 0),
            ..Default::default()
        };
        self.trace.tables.launches.push(row.clone());
        row.row
    }

    /// A kernel with a correlation id and an external id, 0 for none.
    fn kernel(&mut self, name: &str, span: Range<i64>, correlation: i64, external_id: i64) -> u32 {
        self.gpu_op("kernel", name, span, correlation, external_id)
    }

    fn gpu_op(
        &mut self,
        kind: &str,
        name: &str,
        span: Range<i64>,
        correlation: i64,
        external_id: i64,
    ) -> u32 {
        let row = GpuOpRow {
            row: self.next_row(),
            kind: self.text(kind),
            name: Some(self.text(name)),
            device: Some(0),
            start_ns: span.start,
            dur_ns: Some(span.end - span.start),
            correlation: Some(correlation).filter(|&id| id != 0),
            external_id: Some(external_id).filter(|&id| id != 0),
            ..Default::default()
        };
        self.trace.tables.gpu_ops.push(row.clone());
        row.row
    }

    fn frame(&mut self, name: &str, tid: i64, span: Range<i64>) -> u32 {
        let row = PythonRow {
            row: self.next_row(),
            name: Some(self.text(name)),
            track: self.track(tid),
            start_ns: span.start,
            dur_ns: Some(span.end - span.start),
            ..Default::default()
        };
        self.trace.tables.python.push(row.clone());
        row.row
    }

    /// An arrow from a forward to a backward op.
    fn flow(&mut self, id: i64, from: (i64, i64), to: (i64, i64)) {
        for (kind, (tid, start_ns)) in [("s", from), ("f", to)] {
            let row = FlowRow {
                row: self.next_row(),
                id: Some(id),
                name: Some(self.text("fwdbwd")),
                category: Some(self.text("fwdbwd")),
                kind: self.text(kind),
                track: self.track(tid),
                start_ns,
            };
            self.trace.tables.flows.push(row);
        }
    }

    fn link(self) -> Trace {
        self.link_with(&ReadOptions::default())
    }

    fn link_with(mut self, options: &ReadOptions) -> Trace {
        link(&mut self.trace, options);
        self.trace
    }
}

/// The texts of a column.
fn texts<'a>(trace: &'a Trace, column: &Column<Symbol>) -> Vec<Option<&'a str>> {
    column.iter().map(|symbol| symbol.map(|s| trace.symbols.text(s))).collect()
}

/// The rows of a column.
fn all<T: Copy + Default>(column: &Column<T>) -> Vec<Option<T>> {
    column.iter().collect()
}

/// How often something was found.
fn count(trace: &Trace, code: Code) -> u64 {
    trace.stats.get(code).map_or(0, |finding| finding.count)
}
