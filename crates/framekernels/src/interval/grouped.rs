//! Intervals of several groups, in columns: what each group covers, leaves open and hides.

use std::borrow::Cow;

/// When intervals end: at these moments, or so long after their starts.
#[derive(Debug, Clone, Copy)]
pub enum Ends<'a> {
    /// The moments.
    Times(&'a [i64]),
    /// How long each lasts.
    Lengths(&'a [i64]),
}

impl Ends<'_> {
    fn len(&self) -> usize {
        let (Self::Times(values) | Self::Lengths(values)) = self;
        values.len()
    }
}

/// Intervals in columns, each in a group; an interval is known by its position.
///
/// Making it takes one pass where the intervals of a group come in order of start, or in a few runs
/// that do, and every question one pass more.
#[derive(Debug)]
pub struct GroupedIntervals<'a> {
    groups: Option<&'a [u32]>,
    starts: &'a [i64],
    ends: Ends<'a>,
    order: Cow<'a, [u32]>,
    /// The first and the last moment that count.
    window: (i64, i64),
}

/// The positions of intervals by group, then start, then position. Without `groups` all are of one.
#[must_use]
pub fn order_by_start(groups: Option<&[u32]>, starts: &[i64]) -> Vec<u32> {
    let count = groups.map_or(starts.len(), |groups| groups.len().min(starts.len())).min(u32::MAX as usize);
    some_by_start((0..count as u32).collect(), groups, starts)
}

/// The same of some positions, which lie in the columns, and ascend or are in order of start already.
#[must_use]
pub fn some_by_start(mut order: Vec<u32>, groups: Option<&[u32]>, starts: &[i64]) -> Vec<u32> {
    let group = |at: u32| groups.map_or(0, |groups| groups[at as usize]);
    order.sort_by_key(|&at| (group(at), starts[at as usize]));
    order
}

impl<'a> GroupedIntervals<'a> {
    /// The intervals of three columns; what one column has more than another is left out. Without `groups`
    /// all are of one.
    #[must_use]
    pub fn new(groups: Option<&'a [u32]>, starts: &'a [i64], ends: Ends<'a>) -> Self {
        let order = order_by_start(groups, &starts[..starts.len().min(ends.len())]);
        Self { groups, starts, ends, order: Cow::Owned(order), window: (i64::MIN, i64::MAX) }
    }

    /// The same, where [`order_by_start`] has been asked before. No interval is there twice.
    ///
    /// What is later in `order` may not start earlier. Positions beyond a column are left out.
    #[must_use]
    pub fn ordered(groups: Option<&'a [u32]>, starts: &'a [i64], ends: Ends<'a>, order: &'a [u32]) -> Self {
        let count = starts.len().min(ends.len());
        let count = groups.map_or(count, |groups| groups.len().min(count));
        let fits = order.iter().all(|&at| (at as usize) < count);
        let known = || order.iter().copied().filter(|&at| (at as usize) < count).collect();
        let order = if fits { Cow::Borrowed(order) } else { Cow::Owned(known()) };
        Self { groups, starts, ends, order, window: (i64::MIN, i64::MAX) }
    }

    /// What of them lies between a first and a last moment; those outside end before they start.
    #[must_use]
    pub fn within(self, window: (i64, i64)) -> Self {
        Self { window, ..self }
    }

    /// The positions of each group's intervals in order of start, one group after the other.
    #[inline]
    pub(super) fn each_group(&self) -> impl Iterator<Item = &[u32]> {
        self.order.chunk_by(|&a, &b| self.group(a) == self.group(b))
    }

    /// The number of each group, and the position of an interval of it.
    #[must_use]
    pub fn groups(&self) -> Vec<(u32, u32)> {
        self.each_group().filter_map(|group| group.first().map(|&at| (self.group(at), at))).collect()
    }

    #[inline]
    pub(super) fn group(&self, at: u32) -> u32 {
        self.groups.map_or(0, |groups| groups[at as usize])
    }

    #[inline]
    pub(super) fn start(&self, at: u32) -> i64 {
        self.starts[at as usize].max(self.window.0)
    }

    #[inline]
    pub(super) fn end(&self, at: u32) -> i64 {
        let end = match self.ends {
            Ends::Times(ends) => ends[at as usize],
            Ends::Lengths(lengths) => self.starts[at as usize].saturating_add(lengths[at as usize]),
        };
        end.min(self.window.1)
    }

    /// The positions of a group by end, then position.
    pub(super) fn by_end<'g>(&self, group: &'g [u32]) -> Cow<'g, [u32]> {
        let key = |&at: &u32| (self.end(at), at);
        if group.is_sorted_by_key(key) {
            return Cow::Borrowed(group);
        }
        let mut sorted = group.to_vec();
        sorted.sort_by_key(key);
        Cow::Owned(sorted)
    }

    /// How many positions there are, in order or not.
    pub(super) fn positions(&self) -> usize {
        self.starts.len()
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
    /// `level` says of an interval what it counts as.
    #[must_use]
    pub fn covered(&self, level: impl Fn(u32) -> u8) -> Vec<(u32, u8, i64)> {
        let mut found = Vec::new();
        for group in self.each_group() {
            let mut reached: Vec<(i64, i64)> = Vec::new();
            for &at in group {
                let (start, end) = (self.start(at), self.end(at));
                let level = usize::from(level(at));
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

    /// Tells the gaps of each group: the position of the interval that ends each, and where it begins, which
    /// is the latest end before. Time before the first interval is no gap.
    pub fn each_gap(&self, mut tell: impl FnMut(u32, i64)) {
        for group in self.each_group() {
            let mut reached = None;
            for &at in group {
                let start = self.start(at);
                if let Some(before) = reached.filter(|&before| before < start) {
                    tell(at, before);
                }
                reached = reached.max(Some(self.end(at).max(start)));
            }
        }
    }

    /// How much of each interval lies in the intervals of the same group in `cover`, by position.
    #[must_use]
    pub fn hidden_by(&self, cover: &GroupedIntervals<'_>) -> Vec<i64> {
        let mut hidden = vec![0; self.positions()];
        self.each_pair(cover, |group, around| {
            // What is covered until an interval ends, less what is until it starts.
            let mut covered = Covered::by(cover, around);
            let mut starts = group.iter().copied().peekable();
            for &at in self.by_end(group).iter() {
                let end = self.end(at);
                while let Some(next) = starts.next_if(|&next| self.start(next) <= end) {
                    hidden[next as usize] -= covered.until(self.start(next));
                }
                hidden[at as usize] += covered.until(end);
            }
            // Those that end before they start have nothing.
            starts.for_each(|next| hidden[next as usize] = 0);
            group.iter().for_each(|&at| hidden[at as usize] = hidden[at as usize].max(0));
        });
        hidden
    }

    /// Of each interval, by position, the one of its group in `other` with which it shares most time, and how
    /// much; of several the one whose position is least.
    ///
    /// Linear where the intervals of a group overlap little, here as there.
    #[must_use]
    pub fn longest_shared(&self, other: &GroupedIntervals<'_>) -> Vec<Option<(u32, i64)>> {
        let mut found = vec![None; self.positions()];
        let mut reached: Vec<i64> = Vec::new();
        self.each_pair(other, |group, others| {
            reached.clear();
            reached.extend(others.iter().scan(i64::MIN, |latest, &at| {
                *latest = other.end(at).max(*latest);
                Some(*latest)
            }));
            let mut first = 0;
            for &at in group {
                let (start, end) = (self.start(at), self.end(at));
                first += reached[first..].partition_point(|&latest| latest <= start);
                let ahead = others.get(first..).unwrap_or_default();
                for &near in ahead.iter().take_while(|&&near| other.start(near) < end) {
                    let shared = end.min(other.end(near)).saturating_sub(start.max(other.start(near)));
                    let best: &mut Option<(u32, i64)> = &mut found[at as usize];
                    if shared > 0 && best.is_none_or(|(at, most)| (shared, at) > (most, near)) {
                        *best = Some((near, shared));
                    }
                }
            }
        });
        found
    }

    /// The intervals that follow one another in order of start with one label, two or more of them: the
    /// position of each, and a number for each run. Those without a label end a run.
    #[must_use]
    pub fn runs<L: PartialEq>(&self, label: impl Fn(u32) -> Option<L>) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        let mut run = 0;
        for group in self.each_group() {
            // What came last, its label, and whether it was reported.
            let mut last: Option<(u32, L, bool)> = None;
            for &at in group {
                let Some(own) = label(at) else {
                    last = None;
                    continue;
                };
                let mut is_reported = false;
                if let Some((before, known, was_told)) = last.take()
                    && known == own
                {
                    if !was_told {
                        run += 1;
                        found.push((before, run - 1));
                    }
                    found.push((at, run - 1));
                    is_reported = true;
                }
                last = Some((at, own, is_reported));
            }
        }
        found
    }

    /// The positions of each group that `other` has, too, here and there, in order of start.
    pub(super) fn each_pair(&self, other: &GroupedIntervals<'_>, mut tell: impl FnMut(&[u32], &[u32])) {
        let mut others = other.each_group().peekable();
        for group in self.each_group() {
            let &[first, ..] = group else { continue };
            let number = self.group(first);
            let is_before = |group: &&[u32]| group.first().is_some_and(|&at| other.group(at) < number);
            while others.next_if(is_before).is_some() {}
            let is_same = |group: &&[u32]| group.first().is_some_and(|&at| other.group(at) == number);
            if let Some(same) = others.next_if(is_same) {
                tell(group, same);
            }
        }
    }
}

/// Sums up what the intervals of a group cover, up to one moment after the other.
struct Covered<'a> {
    of: &'a GroupedIntervals<'a>,
    /// What has not been looked at, in order of start.
    ahead: std::slice::Iter<'a, u32>,
    /// The part that was reached last: where it begins, and where it ends.
    part: (i64, i64),
    /// What the parts before it cover.
    before: i64,
}

impl<'a> Covered<'a> {
    fn by(of: &'a GroupedIntervals<'a>, group: &'a [u32]) -> Self {
        Self { of, ahead: group.iter(), part: (i64::MIN, i64::MIN), before: 0 }
    }

    /// What is covered before a moment, which is no earlier than the last one.
    fn until(&mut self, moment: i64) -> i64 {
        while let Some(&at) = self.ahead.as_slice().first()
            && self.of.start(at) < moment
        {
            self.ahead.next();
            let (start, end) = (self.of.start(at), self.of.end(at));
            if start > self.part.1 {
                self.before = self.before.saturating_add(self.part.1.saturating_sub(self.part.0));
                self.part = (start, start);
            }
            self.part.1 = self.part.1.max(end);
        }
        let reached = self.part.1.min(moment).saturating_sub(self.part.0);
        self.before.saturating_add(reached)
    }
}
