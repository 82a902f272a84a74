//! A whole trace in memory.

use crate::schema::{SymbolTable, Tables};
use crate::stats::Stats;
use crate::tracks::{Ident, TrackTable};

/// What is known of the file as a whole.
#[derive(Debug, Clone, Default)]
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
    /// The ranks that the file holds, where it is one of several.
    pub ranks: Vec<RankName>,
    /// Which of them the trace is of.
    pub rank: Option<i32>,
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
    /// When the recorder recorded, from when to when, where the file says so.
    pub(crate) capture: Option<(i64, i64)>,
    /// How the events of several ranks are told apart, until they are.
    pub(crate) merged: Option<Merged>,
}

/// What a file says of a rank that it holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RankName {
    /// The rank.
    pub number: i32,
    /// As the file labels it.
    pub label: Option<String>,
    /// Its places, each in what [`RankName::PARTS`] has there.
    pub parts: [Option<i64>; 5],
}

impl RankName {
    /// What labels of ranks count: parallelism over data, experts, the pipeline, context and tensors.
    pub const PARTS: [&'static str; 5] = ["dp", "ep", "pp", "cp", "tp"];
}

/// The ranks of a file that holds several.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// In order of their numbers.
    pub(crate) names: Vec<RankName>,
    /// The rank of each row, as an index into `names`; none where that is not known.
    pub(crate) of_rows: Vec<Option<u32>>,
    /// How many events are of no rank that is known.
    pub(crate) unranked: u64,
    /// The process of each track, as its rank calls it.
    pub(crate) pids: Vec<Ident>,
}
