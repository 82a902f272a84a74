//! What is true of a database, known because it was made and not read.

use serde_json::{Value, json};

use crate::options::DemoOptions;
use crate::truth::Truth;

/// Which recorder's database is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// Nsight Systems, as `nsys export --type sqlite` writes it, schema 3.24.
    Nsys,
    /// nvprof, as `nvprof -o` writes it.
    Nvprof,
}

impl DatabaseKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Nsys, Self::Nvprof];

    /// Name of the kind in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nsys => "nsys",
            Self::Nvprof => "nvprof",
        }
    }
}

/// The truth of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessTruth {
    /// Process id.
    pub pid: i64,
    /// What is true of its rank. Of the JSON there is nothing to say.
    pub truth: Truth,
}

impl ProcessTruth {
    pub(super) fn new(pid: i64, truth: Truth) -> Self {
        Self { pid, truth }
    }

    /// NVTX ranges of the process.
    #[must_use]
    pub fn ranges(&self) -> u64 {
        let calls = self.truth.ops.values().chain(self.truth.annotations.values());
        calls.map(|totals| totals.calls).sum()
    }

    fn to_json(&self) -> Value {
        let mut object = self.truth.to_json();
        if let Some(object) = object.as_object_mut() {
            for key in [
                "truth_version",
                "layout",
                "json_bytes",
                "events",
                "events_by_kind",
                "tables",
                "forward_backward_pairs",
                "peak_device_bytes",
            ] {
                object.remove(key);
            }
            object.insert("pid".to_owned(), self.pid.into());
            object.insert("ranges".to_owned(), self.ranges().into());
        }
        object
    }
}

/// The truth of a database. All times are in nanoseconds of its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseTruth {
    /// The recorder.
    pub kind: &'static str,
    /// Seed of the options.
    pub seed: u64,
    /// Size of the file.
    pub file_bytes: u64,
    /// The processes, in order of rank.
    pub processes: Vec<ProcessTruth>,
}

impl DatabaseTruth {
    pub(super) fn new(kind: DatabaseKind, options: &DemoOptions) -> Self {
        Self { kind: kind.name(), seed: options.seed, file_bytes: 0, processes: Vec::new() }
    }

    /// The truth as a JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "truth_version": 1,
            "kind": self.kind,
            "seed": self.seed,
            "file_bytes": self.file_bytes,
            "processes": self.processes.iter().map(ProcessTruth::to_json).collect::<Vec<_>>(),
        })
    }
}
