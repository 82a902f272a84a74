//! Writes events as Chrome JSON, which Perfetto and other viewers open, or as a protobuf of Perfetto.
//!
//! Events come as batches of columns, part by part in the order of their rows, and leave as bytes: memory is
//! that of one part. The columns say what is written, so that no format of a trace and no table is known
//! here:
//!
//! - `row` orders the events of a part;
//! - `ph`, `cat`, `name`, `s`, `bp` are texts, `pid` and `tid` numbers, `pid_text` and `tid_text` texts in
//!   their place; `ts` and `dur` are ns and written as microseconds; `id` is a number;
//! - `members` is JSON text put between the arguments as it is;
//! - any other column is an argument: `s:KEY` a text, `j:KEY` JSON text, `n:KEY` a number or truth value.
//!
//! A null is not written.

mod columns;
mod part;
mod protobuf;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub use part::Extra;
pub use protobuf::ProtobufWriter;
pub use writer::EventWriter;
