//! Runs of intervals that follow one another.

use super::GroupedIntervals;

impl GroupedIntervals<'_> {
    /// A number for each interval, by position, that it shares with those next to it in order of start
    /// that have its label, too. A label beyond the column is taken as 0.
    #[must_use]
    pub fn runs(&self, labels: &[u32]) -> Vec<u32> {
        let label = |at: u32| labels.get(at as usize).copied().unwrap_or_default();
        let mut runs = vec![0; self.starts().len()];
        let mut run = 0;
        for group in self.each_group() {
            for same in group.chunk_by(|&a, &b| label(a) == label(b)) {
                for &at in same {
                    runs[at as usize] = run;
                }
                run += 1;
            }
        }
        runs
    }
}
