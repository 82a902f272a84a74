//! Kineto JSON: the traces of the PyTorch profiler, of every era and producer.
//!
//! Bytes flow `feed` (chunks) -> `events` (one event after the other, on all threads) -> `rows` and
//! `slices` (event to table row) -> `sequence` (back into file order) -> `header` (what stands around the
//! events) and `exporters` (what only their process tells). `scan`, `members`, `event` and `args` find tokens; `text`, `number` and `fields` interpret them;
//! `repair` mends what is no JSON.

mod args;
mod boundary;
mod event;
mod events;
mod exporters;
mod feed;
mod fields;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod header;
mod members;
mod merged;
mod number;
mod outline;
mod pipeline;
mod repair;
mod rows;
mod scan;
mod sequence;
mod slices;
mod text;

pub(crate) const FORMAT: pipeline::Kineto = pipeline::Kineto;
