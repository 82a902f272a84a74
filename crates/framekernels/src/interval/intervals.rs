//! Intervals of a frame, by group.

use arrow_array::RecordBatch;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_buffer::ScalarBuffer;

use super::{Ends, GroupedIntervals, order_by_start, some_by_start};
use crate::frame::{Frame, NONE, Result, column, is_set, records, table};

/// Intervals of several groups, sorted once for all questions.
///
/// A frame of intervals has `start_ns`, `end_ns` or `dur_ns` (null is 0), and `group` unless all are of one.
/// Answers name a group by the position of one of its intervals, in the column `at`. A `window` is a first
/// and a last moment: what lies outside counts nothing. Where answers depend on the `class` of intervals, the
/// frame `of` has that of each, and another frame has a row for each class; without `of` every interval has a
/// row of the other.
#[derive(Debug, Clone)]
pub struct Intervals {
    groups: Option<ScalarBuffer<u32>>,
    starts: ScalarBuffer<i64>,
    /// When intervals end, or how long they last.
    ends: ScalarBuffer<i64>,
    has_lengths: bool,
    order: Vec<u32>,
}

impl Intervals {
    /// The intervals of a frame.
    pub fn new(frame: &Frame) -> Result<Self> {
        let groups = frame.has("group").then(|| frame.u32_array("group")).transpose()?;
        let (starts, has_lengths) = (frame.i64_array("start_ns")?, !frame.has("end_ns"));
        let ends = frame.i64_array(if has_lengths { "dur_ns" } else { "end_ns" })?;
        let order = order_by_start(groups.as_deref(), &starts);
        Ok(Self { groups, starts, ends, has_lengths, order })
    }

    /// The union of each group: `at`, `start_ns`, `end_ns`, in order.
    pub fn union(&self) -> Result<RecordBatch> {
        let parts = self.all().union();
        records!(parts, part => at: part.0, start_ns: part.1, end_ns: part.2)
    }

    /// For how long each `level`, or one before it, runs in each group: `at`, `level`, `covered_ns`.
    pub fn covered(
        &self,
        levels: &Frame,
        of: Option<&Frame>,
        window: Option<(i64, i64)>,
    ) -> Result<RecordBatch> {
        let (levels, class) = (levels.values::<UInt8Type>("level")?, classes(of)?);
        let found = self.within(window).covered(|at| levels.get(class(at)).copied().unwrap_or_default());
        records!(found, part => at: part.0, level: part.1, covered_ns: part.2)
    }

    /// The gaps of each group: `at`, the position of the interval that ends each, `dur_ns`, and `is_late`,
    /// whether that interval was launched in the gap; null where its launch is not known.
    ///
    /// Intervals have the `launch` of `launched`, a position in `launches`, which have `start_ns`.
    pub fn gaps(&self, launched: &Frame, launches: &Frame) -> Result<RecordBatch> {
        let (places, moments) = (launched.u32_array("launch")?, launches.values::<Int64Type>("start_ns")?);
        let mut gaps: Vec<(u32, i64, Option<bool>)> = Vec::with_capacity(self.order.len());
        self.all().each_gap(|at, before| {
            let start = self.starts.get(at as usize).copied().unwrap_or_default();
            let launch = places.get(at as usize).and_then(|&place| moments.get(place as usize));
            gaps.push((at, start.saturating_sub(before), launch.map(|&moment| moment > before)));
        });
        records!(gaps, gap => at: gap.0, dur_ns: gap.1, is_late: gap.2)
    }

    /// Every change of the queue of each group: `at`, the position of an interval; `enters`, whether the call that
    /// launched it enters the queue, or leaves it as the interval starts; the `length` from then on, and how
    /// long it lasts, `lasts_ns`, 0 after the last change of a group.
    ///
    /// A call leaves the queue with the first interval of the group that it launched; see [`Self::gaps`] for
    /// the arguments. At one instant calls enter before others leave.
    pub fn queues(&self, launched: &Frame, launches: &Frame) -> Result<RecordBatch> {
        let (places, moments) = (launched.u32_array("launch")?, launches.values::<Int64Type>("start_ns")?);
        let group = |at: u32| self.groups.as_ref().map_or(0, |groups| groups[at as usize]);
        let moment = |place: u32| moments.get(place as usize).copied();
        let entered: Vec<Option<i64>> = places.iter().map(|&place| moment(place)).collect();
        // The group in which each call was met last: one follows the other.
        let mut met = vec![NONE; moments.len()];
        let mut is_first = |at: u32| {
            let met = met.get_mut(places[at as usize] as usize);
            met.is_some_and(|met| std::mem::replace(met, group(at)) != group(at))
        };
        let leaving: Vec<u32> = self.order.iter().copied().filter(|&at| is_first(at)).collect();
        let entering = leaving.iter().map(|&at| (at, true));
        let mut changes: Vec<(u32, bool)> = entering.chain(leaving.iter().map(|&at| (at, false))).collect();
        let moment = |&(at, enters): &(u32, bool)| {
            if enters { entered[at as usize] } else { Some(self.starts[at as usize]) }
        };
        changes.sort_by_key(|change| (group(change.0), moment(change)));
        // What enters a queue leaves it, so that every group begins at 0.
        let lengths = changes.iter().scan(0_i32, |length, &(_, enters)| {
            *length += if enters { 1 } else { -1 };
            Some(*length)
        });
        let next = changes.iter().skip(1).map(Some).chain([None]);
        let lasts = changes.iter().zip(next).map(|(change, next)| {
            let next = next.filter(|next| group(next.0) == group(change.0)).and_then(moment);
            next.zip(moment(change)).map_or(0, |(until, from)| until.saturating_sub(from))
        });
        table([
            ("at", column(changes.iter().map(|change| change.0))),
            ("enters", column(changes.iter().map(|change| change.1))),
            ("length", column(lengths)),
            ("lasts_ns", column(lasts)),
        ])
    }

    /// The integral of the summed `share`, of which at most 1 counts: `at`, `filled_ns`.
    ///
    /// Intervals that take no time or have no share above 0 are left out.
    pub fn filled(
        &self,
        shares: &Frame,
        of: Option<&Frame>,
        window: Option<(i64, i64)>,
    ) -> Result<RecordBatch> {
        let (shares, class) = (shares.f64_array("share")?, classes(of)?);
        let found = self.within(window).filled(|at| shares.get(class(at)).copied().unwrap_or_default());
        records!(found, part => at: part.0, filled_ns: part.1)
    }

    /// The intervals of a group that follow one another, are `marked` and have one `label`, two or more of
    /// them: `at`, and a number for each `run`.
    pub fn runs(&self, labels: &Frame) -> Result<RecordBatch> {
        let (marked, labels) = (labels.flags("marked")?, labels.u32_array("label")?);
        let label = |at: u32| labels.get(at as usize).copied().filter(|_| is_set(&marked, at as usize));
        let found = self.all().runs(label);
        records!(found, part => at: part.0, run: part.1)
    }

    /// Those that are `marked`, in the same groups.
    pub fn part(&self, marks: &Frame, of: Option<&Frame>) -> Result<Self> {
        let (marked, class) = (marks.flags("marked")?, classes(of)?);
        let order = self.order.iter().copied().filter(|&at| is_set(&marked, class(at))).collect();
        Ok(Self { order, ..self.clone() })
    }

    /// The same intervals by other groups, `group`, or all in one.
    pub fn regrouped(&self, groups: Option<&Frame>) -> Result<Self> {
        let groups = groups.map(|groups| groups.u32_array("group")).transpose()?;
        let order = some_by_start(self.order.clone(), groups.as_deref(), &self.starts);
        Ok(Self { groups, order, ..self.clone() })
    }

    /// The part of each interval in the time that its group covers, which those that last at once share:
    /// `shared_ns`.
    pub fn shared(&self) -> Result<RecordBatch> {
        table([("shared_ns", column(self.all().shared()))])
    }

    /// The number of each group, `group`, and the position of an interval of it, `at`.
    pub fn groups(&self) -> Result<RecordBatch> {
        let found = self.all().groups();
        records!(found, group => group: group.0, at: group.1)
    }

    /// How much of each interval those of the same group of others cover: `hidden_ns`.
    pub fn hidden_by(&self, cover: &Self) -> Result<RecordBatch> {
        table([("hidden_ns", column(self.all().hidden_by(&cover.all())))])
    }

    fn all(&self) -> GroupedIntervals<'_> {
        let ends = if self.has_lengths { Ends::Lengths(&self.ends) } else { Ends::Times(&self.ends) };
        GroupedIntervals::ordered(self.groups.as_deref(), &self.starts, ends, &self.order)
    }

    fn within(&self, window: Option<(i64, i64)>) -> GroupedIntervals<'_> {
        let all = self.all();
        if let Some(window) = window { all.within(window) } else { all }
    }
}

/// The class of an interval, or its position where each is a class of its own.
fn classes(of: Option<&Frame>) -> Result<impl Fn(u32) -> usize> {
    let of = of.map(|of| of.u32_array("class")).transpose()?;
    Ok(move |at: u32| of.as_ref().map_or(at, |of| of.get(at as usize).copied().unwrap_or(NONE)) as usize)
}

/// The outermost span on its track with which each wait shares most time: `at`, null for none, and
/// `shared_ns`.
///
/// Waits have `track`, `start_ns` and `until_ns`; spans `row`, `parent_row`, `track`, `start_ns` and
/// `dur_ns`. Those in `steps`, by `row`, do not count, as if nothing were in them.
pub fn longest_spans(waits: &Frame, spans: &Frame, steps: &Frame) -> Result<RecordBatch> {
    let steps = steps.u32_array("row")?;
    let last = steps.iter().copied().filter(|&row| row != NONE).max();
    let mut is_step = vec![false; last.map_or(0, |row| row as usize + 1)];
    for &row in steps.iter() {
        if let Some(known) = is_step.get_mut(row as usize) {
            *known = true;
        }
    }
    let is_step = |row: u32| is_step.get(row as usize).copied().unwrap_or_default();
    let (rows, parents) = (spans.u32_array("row")?, spans.u32_array("parent_row")?);
    let is_outermost = |row: u32, parent: u32| (parent == NONE || is_step(parent)) && !is_step(row);
    let outermost = (0_u32..).zip(rows.iter().zip(parents.iter()));
    let outermost = outermost.filter(|&(_, (&row, &parent))| is_outermost(row, parent)).map(|(at, _)| at);
    let (tracks, starts) = (spans.u32_array("track")?, spans.i64_array("start_ns")?);
    let lengths = spans.i64_array("dur_ns")?;
    let order = some_by_start(outermost.collect(), Some(&tracks), &starts);
    let (waiting, from) = (waits.u32_array("track")?, waits.values::<Int64Type>("start_ns")?);
    let until = waits.values::<Int64Type>("until_ns")?;
    let spans = GroupedIntervals::ordered(Some(&tracks), &starts, Ends::Lengths(&lengths), &order);
    let mut found = GroupedIntervals::new(Some(&waiting), from, Ends::Times(until)).longest_shared(&spans);
    // A wait on no known thread shares none.
    found.iter_mut().zip(waiting.iter()).filter(|(_, track)| **track == NONE).for_each(|(at, _)| *at = None);
    records!(found, found => at: found.map(|found| found.0), shared_ns: found.map(|found| found.1))
}
