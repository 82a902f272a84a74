//! A whole trace in memory.

use crate::schema::{SymbolTable, Tables};
use crate::stats::Stats;
use crate::tracks::TrackTable;

/// What is known of the file as a whole.
#[derive(Debug, Default)]
pub struct Meta {
    /// Name of the format: `kineto`, `nsys` or `nvprof`.
    pub format: &'static str,
    /// Compression of the source: `none`, `gzip` or `zstd`.
    pub compression: &'static str,
    /// Bytes of the file on disk.
    pub file_bytes: u64,
    /// Bytes of the uncompressed content.
    pub content_bytes: u64,
    /// Epoch time of the trace's zero, ns; null where the recorder did not store it.
    pub base_time_ns: Option<i64>,
    /// Everything that stands beside the events, in order of the file.
    pub properties: serde_json::Map<String, serde_json::Value>,
}

/// A trace: tables, the texts they refer to, and what was found while reading.
#[derive(Debug, Default)]
pub struct Trace {
    /// The file as a whole.
    pub meta: Meta,
    /// The tables.
    pub tables: Tables,
    /// Texts that the tables refer to.
    pub symbols: SymbolTable,
    /// Tracks that the tables refer to.
    pub tracks: TrackTable,
    /// Counts of events and findings.
    pub stats: Stats,
}
