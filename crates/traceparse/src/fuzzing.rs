//! Parts of the reader that fuzz targets call by themselves.

use crate::formats::kineto::fuzzing as kineto;
use crate::time::{self, Fraction};

pub use kineto::{LOOKAHEAD, is_object, rewrite_object};

/// Nanoseconds of a decimal number of microseconds.
pub fn micros_to_ns(text: &[u8]) -> Option<i64> {
    time::micros_to_ns(text, Fraction::Decimal)
}
