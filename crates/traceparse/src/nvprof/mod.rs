//! Databases that nvprof writes (`nvprof -o FILE`), the recorder before Nsight Systems.
//!
//! `reader` opens one and reads table by table; `source` declares tables and scans their rows. One file
//! per group of tables (`kernels`, `copies`, `calls`, `markers`, `syncs`, `machine`) turns a row into rows
//! of the trace. `strings` resolves texts and the mangled names of kernels, `callbacks` the numbers of API
//! functions.

mod callbacks;
mod calls;
mod copies;
mod kernels;
mod machine;
mod markers;
mod reader;
mod source;
mod strings;
mod syncs;

pub(crate) use reader::{is_nvprof, read};
