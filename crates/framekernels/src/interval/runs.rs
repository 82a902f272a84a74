//! Runs of intervals that follow one another.

use super::GroupedIntervals;

impl GroupedIntervals<'_> {
    /// The intervals that follow one another in order of start with one label, two or more of them: the
    /// position of each, and a number for each run. Those without a label end a run.
    #[must_use]
    pub fn runs<L: PartialEq>(&self, label: impl Fn(u32) -> Option<L>) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        let mut run = 0;
        for group in self.each_group() {
            // What came last, its label, and whether it is told already.
            let mut last: Option<(u32, L, bool)> = None;
            for &at in group {
                let Some(own) = label(at) else {
                    last = None;
                    continue;
                };
                let mut is_told = false;
                if let Some((before, known, was_told)) = last.take()
                    && known == own
                {
                    if !was_told {
                        run += 1;
                        found.push((before, run - 1));
                    }
                    found.push((at, run - 1));
                    is_told = true;
                }
                last = Some((at, own, is_told));
            }
        }
        found
    }
}
