//! Intervals of several groups, in columns: what each group covers, leaves open and hides.

/// Numbers of groups per interval up to which intervals are counted into groups, not sorted.
const SPREAD: usize = 4;
/// Numbers of groups that are counted into however few intervals there are.
const FEW: usize = 4096;

/// Intervals in columns, each in a group; an interval is known by its position.
///
/// Making it takes one pass where the intervals of a group come in order of start, or in a few runs
/// that do, and every question one pass more.
#[derive(Debug)]
pub struct GroupedIntervals<'a> {
    groups: &'a [u32],
    starts: &'a [i64],
    ends: &'a [i64],
    /// Positions by group, then start, then position.
    order: Vec<u32>,
}

impl<'a> GroupedIntervals<'a> {
    /// The intervals of three columns; what one column has more than another is left out.
    #[must_use]
    pub fn new(groups: &'a [u32], starts: &'a [i64], ends: &'a [i64]) -> Self {
        let count = groups.len().min(starts.len()).min(ends.len()).min(u32::MAX as usize);
        let (groups, starts, ends) = (&groups[..count], &starts[..count], &ends[..count]);
        let mut order = by_group(groups);
        for group in order.chunk_by_mut(|&a, &b| groups[a as usize] == groups[b as usize]) {
            // Stable, since it is linear in what comes in runs.
            if !group.is_sorted_by_key(|&at| starts[at as usize]) {
                group.sort_by_key(|&at| starts[at as usize]);
            }
        }
        Self { groups, starts, ends, order }
    }

    /// How many intervals there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no interval.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The positions of each group's intervals in order of start, one group after the other.
    pub(super) fn each_group(&self) -> impl Iterator<Item = &[u32]> {
        self.order.chunk_by(|&a, &b| self.group(a) == self.group(b))
    }

    pub(super) fn group(&self, at: u32) -> u32 {
        self.groups[at as usize]
    }

    pub(super) fn start(&self, at: u32) -> i64 {
        self.starts[at as usize]
    }

    pub(super) fn end(&self, at: u32) -> i64 {
        self.ends[at as usize]
    }

    /// The union of each group, as disjoint parts that do not touch, in order: the position of an
    /// interval of the group, start and end. Empty intervals cover nothing.
    #[must_use]
    pub fn union(&self) -> Vec<(u32, i64, i64)> {
        let mut parts: Vec<(u32, i64, i64)> = Vec::new();
        for group in self.each_group() {
            let first = parts.len();
            for &at in group {
                let (start, end) = (self.start(at), self.end(at));
                match parts.get_mut(first..).and_then(<[_]>::last_mut) {
                    _ if end <= start => {}
                    Some(last) if start <= last.2 => last.2 = last.2.max(end),
                    _ => parts.push((at, start, end)),
                }
            }
        }
        parts
    }

    /// For how long something of a level, or of one before it, runs in each group: the position of an
    /// interval of the group, the level and the time. Each level of a group is there, up to its highest.
    ///
    /// `levels` says of each interval what it counts as, and is taken as 0 beyond its end.
    #[must_use]
    pub fn covered(&self, levels: &[u8]) -> Vec<(u32, u8, i64)> {
        let mut found = Vec::new();
        for group in self.each_group() {
            let mut reached: Vec<(i64, i64)> = Vec::new();
            for &at in group {
                let (start, end) = (self.start(at), self.end(at));
                let level = usize::from(levels.get(at as usize).copied().unwrap_or_default());
                // What runs at a level runs at all that count after it.
                let last = reached.last().copied().unwrap_or((i64::MIN, 0));
                if level >= reached.len() {
                    reached.resize(level + 1, last);
                }
                for (until, covered) in &mut reached[level..] {
                    if end > start && end > *until {
                        *covered = covered.saturating_add(end.saturating_sub(start.max(*until)));
                        *until = end;
                    }
                }
            }
            let &[first, ..] = group else { continue };
            found.extend((0_u8..=u8::MAX).zip(reached).map(|(level, (_, covered))| (first, level, covered)));
        }
        found
    }

    /// The gaps of each group: the position of the interval that ends each, and where it begins, which
    /// is the latest end before. Time before the first interval is no gap.
    #[must_use]
    pub fn gaps(&self) -> Vec<(u32, i64)> {
        let mut gaps = Vec::new();
        for group in self.each_group() {
            let mut reached = None;
            for &at in group {
                let start = self.start(at);
                if let Some(before) = reached.filter(|&before| before < start) {
                    gaps.push((at, before));
                }
                reached = reached.max(Some(self.end(at).max(start)));
            }
        }
        gaps
    }

    /// How much of each interval lies in the intervals of the same group in `cover`, by position.
    #[must_use]
    pub fn hidden_by(&self, cover: &GroupedIntervals<'_>) -> Vec<i64> {
        let mut hidden = vec![0; self.len()];
        let parts = cover.union();
        let mut before = 0_i64;
        let lengths = parts.iter().map(|&(_, start, end)| {
            before = before.saturating_add(end.saturating_sub(start));
            before.saturating_sub(end.saturating_sub(start))
        });
        let covered: Vec<i64> = lengths.collect();
        let of = |part: &(u32, i64, i64)| cover.groups[part.0 as usize];
        let mut from = 0;
        for group in self.each_group() {
            let &[first, ..] = group else { continue };
            let number = self.groups[first as usize];
            from += parts[from..].partition_point(|part| of(part) < number);
            let to = from + parts[from..].partition_point(|part| of(part) == number);
            let own = &parts[from..to];
            // The time that parts cover up to a moment.
            let until = |moment: i64| {
                let Some(last) = own.partition_point(|part| part.1 <= moment).checked_sub(1) else {
                    return covered.get(from).copied().unwrap_or_default();
                };
                let (_, start, end) = own[last];
                covered[from + last].saturating_add(end.min(moment).saturating_sub(start))
            };
            for &at in group {
                hidden[at as usize] = until(self.end(at)).saturating_sub(until(self.start(at))).max(0);
            }
            from = to;
        }
        hidden
    }
}

/// Positions by group, those of one group in order.
fn by_group(groups: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..groups.len() as u32).collect();
    if groups.is_sorted() {
        return order;
    }
    let highest = groups.iter().copied().max().unwrap_or_default() as usize;
    if highest > SPREAD * groups.len() + FEW {
        order.sort_by_key(|&at| groups[at as usize]);
        return order;
    }
    let mut next = vec![0_u32; highest + 2];
    for &group in groups {
        next[group as usize + 1] += 1;
    }
    for group in 0..=highest {
        next[group + 1] += next[group];
    }
    for (&group, at) in groups.iter().zip(0_u32..) {
        let place = &mut next[group as usize];
        order[*place as usize] = at;
        *place += 1;
    }
    order
}
