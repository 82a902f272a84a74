//! Databases that Nsight Systems exports (`nsys export --type sqlite`), schema 2.x to 3.25.
//!
//! `open` connects, `catalog` probes tables and columns, `plan` cuts the tables into runs of rows,
//! and `pipeline` reads the runs on several threads and puts them back into order. One file per
//! group of tables (`kernels`, `copies`, `calls`, `syncs`, `nvtx`, `spans`, `faults`, `memory`, `metrics`)
//! declares the columns and turns a row into rows of the trace. `cells` reads values whatever their
//! type, `strings` and `identity` resolve texts and ids, and `session`, `machine` and `capture` read
//! what stands beside the events; `launching` knows the calls that launched GPU work.

mod builder;
mod calls;
mod capture;
mod copies;
mod faults;
mod identity;
mod kernels;
mod launching;
mod machine;
mod memory;
mod metrics;
mod nvtx;
mod pipeline;
mod plan;
mod session;
mod source;
mod spans;
mod strings;
mod syncs;

pub(crate) use pipeline::read;

use crate::nvtx_text;
use crate::sqlite::{catalog, cells, open};
