//! Writes realistic Kineto traces of any size whose truth is known by construction.
//!
//! The traced program is a small transformer language model trained on one H100 per rank: data
//! loader, forward, loss, backward on the autograd thread, all-reduce of the gradients, AdamW. A
//! plan of one training step is built once; each step then plays it against host clocks and GPU
//! streams with seeded jitter, so that kernels queue behind the host, outlive their operators and
//! wait for other ranks. Every fourth step replays the optimizer as a CUDA graph. With eight ranks or more
//! something is wrong with the job, on purpose: see [`Faults`]. A [`Cause`] makes one thing wrong with any job, and
//! changes nothing else.
//!
//! - [`write_trace`] writes the trace of one rank to any [`std::io::Write`] and returns its [`Truth`];
//! - [`write_files`] writes one file per rank, and the truth beside it if asked;
//! - [`write_database`] writes the same program, all ranks in one file, as a database of nsys or nvprof;
//! - [`write_serving`] and [`write_training`] write other programs: an engine that serves a model, and a job with
//!   several dimensions of parallelism.
//!
//! Promises:
//!
//! - the same [`DemoOptions`] give the same bytes on every machine;
//! - memory does not grow with the size of the trace, but for the truth of each step: a step is written
//!   before the next is made (20 MB for 10 GB);
//! - the truth is counted where events are made, never by reading them back;
//! - every [`Layout`] holds the same events with the same values.
//!
//! ```
//! use tracedemo::{DemoOptions, write_trace};
//!
//! let options = DemoOptions { size_bytes: 1_000_000, ranks: 1, ..DemoOptions::default() };
//! let mut bytes = Vec::new();
//! let truth = write_trace(&options, &mut bytes, &mut |_| true).expect("a vector takes every byte");
//! assert_eq!(truth.json_bytes, bytes.len() as u64);
//! assert!(truth.steps.iter().all(|step| step.parts.iter().sum::<i64>() == step.total_ns));
//! ```
#![forbid(unsafe_code)]

mod calls;
mod cohort;
mod database;
mod event;
mod gpu;
mod job;
mod json;
mod layout;
mod ledger;
mod library;
mod model;
mod options;
mod plan;
mod rank;
mod serving;
mod tensor;
mod timeline;
mod trace;
mod training;
mod truth;

pub use database::{DatabaseKind, DatabaseTruth, ProcessTruth, write_database};
pub use job::Faults;
pub use options::{Cause, DemoOptions, Layout};
pub use serving::{ServingOptions, ServingRecorder, write_serving};
pub use trace::{RankFile, write_files, write_trace};
pub use training::{Parallel, Recompute, TrainingFault, TrainingOptions, write_training};
pub use truth::{GpuTotals, OpTotals, PART_NAMES, StepTruth, Truth};
