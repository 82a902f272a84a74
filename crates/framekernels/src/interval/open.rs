//! A sweep's memory of the intervals that may still contain something.

/// The intervals that a sweep over starts has met and that can still be innermost.
///
/// Intervals are pushed in order of start, longer first among equals. One that ends no later than
/// a newer one can never again be the innermost container of anything, so the ends on the stack
/// fall from bottom to top and a query is a binary search. This holds for intervals that overlap
/// in part just as for nested ones.
#[derive(Debug, Default)]
pub struct OpenIntervals {
    stack: Vec<(i64, u32)>,
}

impl OpenIntervals {
    /// Adds the next interval.
    #[inline]
    pub fn push(&mut self, end: i64, id: u32) {
        while self.stack.last().is_some_and(|&(open_end, _)| open_end <= end) {
            self.stack.pop();
        }
        self.stack.push((end, id));
    }

    /// The id of the innermost interval that reaches at least to `end`.
    #[inline]
    pub fn innermost(&self, end: i64) -> Option<u32> {
        // Most queries lie in the newest interval or in the one around it.
        if let Some(&(open_end, id)) = self.stack.last()
            && open_end >= end
        {
            return Some(id);
        }
        let reaching = self.stack.partition_point(|&(open_end, _)| open_end >= end);
        self.stack[..reaching].last().map(|&(_, id)| id)
    }

    /// Forgets everything, keeping the allocation.
    pub fn clear(&mut self) {
        self.stack.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::OpenIntervals;
    use proptest::prelude::*;

    #[test]
    fn partial_overlap_keeps_the_outer_interval() {
        let mut open = OpenIntervals::default();
        open.push(100, 0);
        open.push(20, 1);
        open.push(30, 2);
        assert_eq!(open.innermost(25), Some(2));
        assert_eq!(open.innermost(40), Some(0));
        assert_eq!(open.innermost(101), None);
        open.clear();
        assert_eq!(open.innermost(1), None);
    }

    proptest! {
        #[test]
        fn equals_a_search_of_all(
            mut intervals in proptest::collection::vec((0i64..30, 0i64..12), 1..40),
            queries in proptest::collection::vec((0i64..40, 0i64..6), 1..20),
        ) {
            intervals.sort_by_key(|&(start, length)| (start, -length));
            for (start, length) in queries {
                let mut open = OpenIntervals::default();
                let mut expected = None;
                for (id, &(s, l)) in intervals.iter().enumerate().take_while(|(_, i)| i.0 <= start) {
                    open.push(s + l, id as u32);
                    if s + l >= start + length {
                        expected = Some(id as u32);
                    }
                }
                prop_assert_eq!(open.innermost(start + length), expected);
            }
        }
    }
}
