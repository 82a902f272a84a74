//! Parts of the reader that fuzz targets call by themselves.

use super::repair;
use super::scan::{Cursor, Kind};
use crate::time::{self, Fraction};

/// Bytes behind the place that an attempt reached which have a part in it.
pub const LOOKAHEAD: usize = super::boundary::LOOKAHEAD;

/// What the damaged event at the start of `bytes` is rewritten to, and how far it was looked at.
pub fn rewrite_event(bytes: &[u8], boundaries: usize) -> (Option<Vec<u8>>, usize) {
    let attempt = repair::rewrite_event(bytes, boundaries, |_| true);
    (attempt.outcome.ok().map(|found| found.json), attempt.reached)
}

/// Whether the scanner reads `json` as one object up to its end.
pub fn is_object(json: &[u8]) -> bool {
    let mut cursor = Cursor::new(json, 0);
    let is_nested = cursor.value().is_ok_and(|raw| raw.kind == Kind::Nested);
    is_nested && json.starts_with(b"{") && cursor.at == json.len()
}

/// Nanoseconds of a decimal number of microseconds.
pub fn micros_to_ns(text: &[u8]) -> Option<i64> {
    time::micros_to_ns(text, Fraction::Decimal)
}
