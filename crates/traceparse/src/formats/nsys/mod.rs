//! Databases that Nsight Systems exports (`nsys export --type sqlite`), schema 2.x to 3.25.
//!
//! `read` reads a database as a whole. One file per group of tables (`gpu_ops`, `calls`, `nvtx`,
//! `spans`, `memory`, `libraries`, `network`) declares the columns and turns a row into rows of the trace. `recording`
//! holds what is known before the events are read: `session`, `machine` and `capture` read what stands beside
//! them, `identity` takes ids apart, `events` and `names` find what rows refer to, and `launching` knows the
//! calls that launched GPU work.

mod calls;
mod capture;
mod events;
mod gpu_ops;
mod identity;
mod launching;
mod libraries;
mod machine;
mod memory;
mod metrics;
mod names;
mod network;
mod nvtx;
mod payloads;
mod read;
mod recording;
mod session;
mod spans;

pub(crate) const FORMAT: read::Nsys = read::Nsys;
