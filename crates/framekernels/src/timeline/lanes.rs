//! Lays events out so that no two in a lane overlap.

/// The events that are open while a track is walked in order of (start, longest first).
#[derive(Debug, Default)]
pub(super) struct Stack {
    ends: Vec<i64>,
}

impl Stack {
    /// The lane of the next event.
    ///
    /// Only events on top are closed: one that ends earlier than an event in a lane below it keeps its
    /// lane taken until that event ends too.
    #[inline]
    pub(super) fn push(&mut self, start: i64, end: i64) -> usize {
        while self.ends.last().is_some_and(|&open| open <= start) {
            self.ends.pop();
        }
        self.ends.push(end);
        self.ends.len() - 1
    }
}
