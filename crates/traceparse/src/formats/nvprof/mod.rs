//! Databases that nvprof writes (`nvprof -o FILE`), the recorder before Nsight Systems.
//!
//! `read` reads a database as a whole. One file per group of tables (`gpu_ops`, `calls`, `markers`, `machine`)
//! declares the columns and turns a row into rows of the trace. `recording` holds what is known before the
//! events are read, `ends` the times at which ranges end, and `callbacks` the names of API functions.

mod callbacks;
mod calls;
mod ends;
mod gpu_ops;
mod machine;
mod markers;
mod read;
mod recording;

pub(crate) const FORMAT: read::Nvprof = read::Nvprof;
