//! How much of calls what lies in them covers.

/// Calls by position, which grow covered as what lies in them is told.
#[derive(Debug)]
pub struct Covered<'a> {
    starts: &'a [i64],
    lengths: &'a [i64],
    /// Until when each is looked at, and how much of it until then is covered.
    covered: Vec<(i64, i64)>,
}

impl<'a> Covered<'a> {
    /// Calls of which nothing is covered.
    #[must_use]
    pub fn new(starts: &'a [i64], lengths: &'a [i64]) -> Self {
        Self { starts, lengths, covered: starts.iter().map(|&start| (start, 0)).collect() }
    }

    /// Covers the call at `at` from `start` on for `length`, as far as it lasts then. What covers a call is told
    /// in order of starts.
    pub fn add(&mut self, at: u32, start: i64, length: i64) {
        let at = at as usize;
        let (Some(&from), Some(&lasts)) = (self.starts.get(at), self.lengths.get(at)) else { return };
        let Some((until, covered)) = self.covered.get_mut(at) else { return };
        let end = start.saturating_add(length).min(from.saturating_add(lasts));
        *covered += end.saturating_sub(start.max(*until)).max(0);
        *until = end.max(*until);
    }

    /// How much of each call is covered.
    pub fn into_lengths(self) -> impl Iterator<Item = i64> {
        self.covered.into_iter().map(|(_, covered)| covered)
    }
}
