//! What an event of the program is in a database.

use std::fmt::Write as _;

use crate::event::{Arg, Ident, Record, Shape};
use crate::library::Process;

/// An event without its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// An operator or annotation: an NVTX range.
    Range(Range),
    /// A call of the runtime or driver; its correlation id is the record's value 1.
    Call { tid: i64, name: String, callback: i64, is_driver: bool },
    /// A wait for a stream; the same.
    Sync { stream: i64 },
    /// A kernel; the same.
    Kernel(Box<Kernel>),
    /// A copy between host and device; the same.
    Copy { to_device: bool, is_pinned: bool, bytes: i64, stream: i64 },
    /// A memset; the same.
    Memset { bytes: i64, stream: i64 },
    /// What these databases do not have.
    Other,
}

/// The text of a range and what is appended to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) tid: i64,
    pub(super) name: String,
    /// Whether the record's value 2 follows the name.
    pub(super) is_numbered: bool,
    /// Whether it is an operator: value 0 is its id, value 1 its sequence number.
    pub(super) is_operator: bool,
    pub(super) has_sequence: bool,
    pub(super) sizes: Option<String>,
}

/// A kernel's launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) stream: i64,
    pub(super) registers: i64,
    pub(super) shared_memory: i64,
    pub(super) grid: [i64; 3],
    pub(super) block: [i64; 3],
    /// Graph and node; null outside of graphs.
    pub(super) graph: Option<(i64, i64)>,
}

impl Event {
    /// What a shape is.
    pub(super) fn of(shape: &Shape) -> Self {
        let tid = number_of(shape.tid);
        match shape.category {
            "cpu_op" | "user_annotation" => Self::Range(Range {
                tid,
                name: shape.name.clone(),
                is_numbered: shape.name_number.is_some(),
                is_operator: shape.category == "cpu_op",
                has_sequence: shape.args.iter().any(|(key, _)| *key == "Sequence number"),
                sizes: text(shape, "Input Dims").map(str::to_owned),
            }),
            "cuda_runtime" | "cuda_driver" => Self::Call {
                tid,
                name: shape.name.clone(),
                callback: number(shape, "cbid"),
                is_driver: shape.category == "cuda_driver",
            },
            "cuda_sync" => Self::Sync { stream: tid },
            "kernel" => Self::Kernel(Box::new(Kernel::of(shape))),
            "gpu_memcpy" => Self::Copy {
                to_device: shape.name.contains("HtoD"),
                is_pinned: shape.name.contains("Pinned"),
                bytes: number(shape, "bytes"),
                stream: tid,
            },
            "gpu_memset" => Self::Memset { bytes: number(shape, "bytes"), stream: tid },
            _ => Self::Other,
        }
    }
}

impl Kernel {
    fn of(shape: &Shape) -> Self {
        let graph = number(shape, "graph id");
        Self {
            name: shape.name.clone(),
            stream: number_of(shape.tid),
            registers: number(shape, "registers per thread"),
            shared_memory: number(shape, "shared memory"),
            grid: triple(shape, "grid"),
            block: triple(shape, "block"),
            graph: (graph != 0).then(|| (graph, number(shape, "graph node id"))),
        }
    }
}

impl Range {
    /// Writes the text of one event as `emit_nvtx` does.
    pub(super) fn text(&self, record: &Record, out: &mut String) {
        out.clear();
        out.push_str(&self.name);
        // Writing to a string cannot fail.
        if self.is_numbered {
            let _ = write!(out, "{}", record.values[2]);
        }
        if self.has_sequence {
            let _ = write!(out, ", seq = {}", record.values[1]);
        }
        if self.is_operator {
            let _ = write!(out, ", op_id = {}", record.values[0]);
        }
        if let Some(sizes) = &self.sizes {
            let _ = write!(out, ", sizes = {sizes}");
        }
    }
}

/// Turns events into rows of one recorder's tables.
pub(super) trait Tables {
    /// Writes what stands beside the events of a process, before them.
    fn begin(&mut self, process: Process) -> rusqlite::Result<()>;
    /// Writes an event.
    fn event(&mut self, process: Process, event: &Event, record: &Record) -> rusqlite::Result<()>;
    /// Writes what is known at the end.
    fn end(&mut self, end_ns: i64) -> rusqlite::Result<()>;
}

fn number_of(ident: Ident) -> i64 {
    match ident {
        Ident::Int(number) => number,
        Ident::Text(_) => 0,
    }
}

fn text<'s>(shape: &'s Shape, wanted: &str) -> Option<&'s str> {
    shape.args.iter().find_map(|(key, value)| match value {
        Arg::Json(text) if *key == wanted => Some(text.as_str()),
        _ => None,
    })
}

fn number(shape: &Shape, key: &str) -> i64 {
    text(shape, key).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn triple(shape: &Shape, key: &str) -> [i64; 3] {
    let mut numbers = text(shape, key).unwrap_or("").trim_matches(['[', ']']).split(", ").map(str::parse);
    [(); 3].map(|()| numbers.next().and_then(Result::ok).unwrap_or(1))
}
