//! Streams GPU profiler traces into linked, columnar tables.
//!
//! Constraints the design rests on:
//!
//! - a file is read through bounded buffers and never mapped, so that a file cut while it is read
//!   cannot kill the process;
//! - time is integer nanoseconds, parsed from decimal text and never through a float;
//! - one bad event never costs the file: it is repaired or dropped, and counted in [`Stats`];
//! - tables do not depend on the number of threads or on where the bytes were cut;
//! - nothing is recursive and nothing is quadratic in what a file can contain.
#![forbid(unsafe_code)]

pub mod schema;

mod error;
mod formats;
mod link;
mod metric_names;
mod nvtx_text;
mod options;
mod ranks;
mod read;
mod source;
mod stats;
mod time;
mod trace;
mod tracks;

pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "fuzzing")]
pub use formats::kineto::fuzzing;
pub use link::{HOST_COLLECTIVES, Lengths, step_lengths};
pub use options::{Filter, Progress, ReadOptions};
pub use read::{read, read_ranks};
pub use stats::{Code, Finding, Severity, Stats};
pub use trace::{Meta, RankName, Trace};
pub use tracks::{Ident, TrackKey, TrackTable};
