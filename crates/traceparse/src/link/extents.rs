//! Starts and ends of the rows of one table.

use crate::schema::Column;

/// Starts and ends of the rows of one table; a row without a duration ends where it starts.
#[derive(Clone, Copy)]
pub(super) struct Extents<'a> {
    starts: &'a [i64],
    /// Empty where no row has a duration; a null holds 0.
    durations: &'a [i64],
}

impl<'a> Extents<'a> {
    pub(super) fn new(start_ns: &'a Column<i64>, dur_ns: &'a Column<i64>) -> Self {
        Self { starts: start_ns.values(), durations: dur_ns.values() }
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn starts(&self) -> &'a [i64] {
        self.starts
    }

    #[inline]
    pub(super) fn start(&self, index: u32) -> i64 {
        self.starts[index as usize]
    }

    #[inline]
    pub(super) fn end(&self, index: u32) -> i64 {
        let duration = self.durations.get(index as usize).copied().unwrap_or(0);
        self.starts[index as usize].saturating_add(duration.max(0))
    }

    /// Start and end.
    #[inline]
    pub(super) fn of(&self, index: u32) -> (i64, i64) {
        (self.start(index), self.end(index))
    }
}
