//! What intervals of several groups cover.
//!
//! A frame has the columns `start_ns`, `end_ns` or `dur_ns`, and `group` unless all are of one. Answers name
//! a group by the position of one of its intervals, in the column `at`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, UInt8Array, UInt32Array};
use framekernels::interval::{Ends, GroupedIntervals, first_of_each, order_by_start, some_by_start};
use framekernels::numbering::NOWHERE;
use pyo3::prelude::*;

use crate::answer::answer;
use crate::frame::{Frame, Outcome};
use crate::table::{ArrowTable, table};

/// Intervals of several groups, sorted once for all that is asked of them.
///
/// In place of `end_ns` they may have `dur_ns`, which may be null. A `window` is a first and a last moment:
/// what lies outside counts nothing. Where answers depend on the `class` of intervals, one frame has that of
/// each, and another has a row for each class; without the first every interval has a row of the other.
#[pyclass(module = "kernelscope._traceparse", frozen)]
pub(crate) struct Intervals {
    groups: Option<UInt32Array>,
    starts: Int64Array,
    ends: Kept,
    order: Vec<u32>,
}

/// When intervals end, as a frame has it.
#[derive(Clone)]
enum Kept {
    Times(Int64Array),
    Lengths(Int64Array),
}

#[pymethods]
impl Intervals {
    #[new]
    fn new(py: Python<'_>, frame: Frame) -> PyResult<Self> {
        answer(py, || {
            let groups = frame.has("group").then(|| frame.kept_links("group", NOWHERE)).transpose()?;
            let starts = frame.kept_numbers("start_ns")?;
            let ends = if frame.has("end_ns") {
                Kept::Times(frame.kept_numbers("end_ns")?)
            } else {
                Kept::Lengths(frame.kept_numbers("dur_ns")?)
            };
            let order =
                order_by_start(groups.as_ref().map(|groups| groups.values().as_ref()), starts.values());
            Ok(Self { groups, starts, ends, order })
        })
    }

    /// The union of each group: `at`, `start_ns`, `end_ns`, in order.
    fn union(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || spans(&self.all().union()))
    }

    /// The first start and the last end of each group: `at`, `start_ns`, `end_ns`.
    fn extents(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || spans(&self.all().extents()))
    }

    /// For how long each `level`, or one before it, runs in each group: `at`, `level`, `covered_ns`.
    fn covered(
        &self,
        py: Python<'_>,
        levels: Frame,
        of: Option<Frame>,
        window: Option<(i64, i64)>,
    ) -> PyResult<ArrowTable> {
        answer(py, || {
            let (levels, class) = (levels.values::<UInt8Type>("level")?, classes(of.as_ref())?);
            let level = |at| levels.get(class(at)).copied().unwrap_or_default();
            let found = self.within(window).covered(level);
            table(vec![
                ("at", numbers(found.iter().map(|part| part.0))),
                ("level", Arc::new(found.iter().map(|part| part.1).collect::<UInt8Array>())),
                ("covered_ns", times(found.iter().map(|part| part.2))),
            ])
        })
    }

    /// The gaps of each group: `at`, the position of the interval that ends each, `dur_ns`, and `is_late`,
    /// whether that interval was launched in the gap; null where its launch is not known.
    ///
    /// Intervals have the `launch` of `launched`, a position in `launches`, which have `start_ns`.
    fn gaps(&self, py: Python<'_>, launched: Frame, launches: Frame) -> PyResult<ArrowTable> {
        answer(py, || {
            let (places, moments) =
                (launched.links("launch", NOWHERE)?, launches.values::<Int64Type>("start_ns")?);
            let most = self.order.len();
            let (mut ats, mut lasts) = (Vec::with_capacity(most), Vec::with_capacity(most));
            let mut late: Vec<Option<bool>> = Vec::with_capacity(most);
            self.all().each_gap(|at, before| {
                let start = self.starts.values().get(at as usize).copied().unwrap_or_default();
                let launch = places.get(at as usize).and_then(|&place| moments.get(place as usize));
                ats.push(at);
                lasts.push(start.saturating_sub(before));
                late.push(launch.map(|&moment| moment > before));
            });
            table(vec![
                ("at", Arc::new(UInt32Array::from(ats))),
                ("dur_ns", Arc::new(Int64Array::from(lasts))),
                ("is_late", Arc::new(BooleanArray::from(late))),
            ])
        })
    }

    /// The integral of the summed `share`, of which at most 1 counts: `at`, `filled_ns`.
    ///
    /// Intervals that take no time or have no share above 0 are left out.
    fn filled(
        &self,
        py: Python<'_>,
        shares: Frame,
        of: Option<Frame>,
        window: Option<(i64, i64)>,
    ) -> PyResult<ArrowTable> {
        answer(py, || {
            let (shares, class) = (shares.fractions("share")?, classes(of.as_ref())?);
            let share = |at| shares.get(class(at)).copied().unwrap_or_default();
            let found = self.within(window).filled(share);
            table(vec![
                ("at", numbers(found.iter().map(|part| part.0))),
                ("filled_ns", Arc::new(found.iter().map(|part| part.1).collect::<Float64Array>())),
            ])
        })
    }

    /// Of each of `count` classes how many intervals lie in a window, in whole or in part: `rows`, and for how
    /// long: `inside_ns`.
    fn inside(&self, py: Python<'_>, of: Frame, count: u32, window: (i64, i64)) -> PyResult<ArrowTable> {
        answer(py, || {
            let mut found = vec![(0_i64, 0_i64); count as usize];
            let class = classes(Some(&of))?;
            self.within(Some(window)).each(|at, start, end| {
                if end > start
                    && let Some((rows, inside)) = found.get_mut(class(at))
                {
                    *rows += 1;
                    *inside = inside.saturating_add(end.saturating_sub(start));
                }
            });
            table(vec![
                ("rows", times(found.iter().map(|class| class.0))),
                ("inside_ns", times(found.iter().map(|class| class.1))),
            ])
        })
    }

    /// The intervals of a group that follow one another, are `marked` and have one `label`, two or more of
    /// them: `at`, and a number for each `run`.
    fn runs(&self, py: Python<'_>, labels: Frame) -> PyResult<ArrowTable> {
        answer(py, || {
            let (marked, labels) = (labels.flags("marked")?, labels.links("label", NOWHERE)?);
            let is_marked = |at: u32| marked.get(at as usize).copied().unwrap_or_default();
            let label = |at: u32| labels.get(at as usize).copied().filter(|_| is_marked(at));
            let (ats, runs): (Vec<u32>, Vec<u32>) = self.all().runs(label).into_iter().unzip();
            table(vec![("at", Arc::new(UInt32Array::from(ats))), ("run", Arc::new(UInt32Array::from(runs)))])
        })
    }

    /// Some of them, those that are `marked`, in the same groups.
    fn part(&self, py: Python<'_>, marks: Frame, of: Option<Frame>) -> PyResult<Self> {
        answer(py, || {
            let (marked, class) = (marks.flags("marked")?, classes(of.as_ref())?);
            let is_marked = |&at: &u32| marked.get(class(at)).copied().unwrap_or_default();
            Ok(Self {
                groups: self.groups.clone(),
                starts: self.starts.clone(),
                ends: self.ends.clone(),
                order: self.order.iter().copied().filter(is_marked).collect(),
            })
        })
    }

    /// The same intervals by other groups, `group`, or all in one.
    fn regrouped(&self, py: Python<'_>, groups: Option<Frame>) -> PyResult<Self> {
        answer(py, || {
            let groups = groups.map(|groups| groups.kept_links("group", NOWHERE)).transpose()?;
            let codes = groups.as_ref().map(|groups| groups.values().as_ref());
            let order = some_by_start(self.order.clone(), codes, self.starts.values());
            Ok(Self { groups, starts: self.starts.clone(), ends: self.ends.clone(), order })
        })
    }

    /// The part of each interval in the time that its group covers, which those that last at once share:
    /// `shared_ns`.
    fn shared(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || table(vec![("shared_ns", Arc::new(Float64Array::from(self.all().shared())))]))
    }

    /// The number of each group, `group`, and the position of an interval of it, `at`.
    fn groups(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || {
            let found = self.all().groups();
            table(vec![
                ("group", numbers(found.iter().map(|group| group.0))),
                ("at", numbers(found.iter().map(|group| group.1))),
            ])
        })
    }

    /// How much of each interval those of the same group of others cover: `hidden_ns`.
    fn hidden_by(&self, py: Python<'_>, cover: &Intervals) -> PyResult<ArrowTable> {
        answer(py, || {
            let hidden = self.all().hidden_by(&cover.all());
            table(vec![("hidden_ns", Arc::new(Int64Array::from(hidden)))])
        })
    }
}

impl Intervals {
    fn all(&self) -> GroupedIntervals<'_> {
        let groups = self.groups.as_ref().map(|groups| groups.values().as_ref());
        let ends = match &self.ends {
            Kept::Times(ends) => Ends::Times(ends.values()),
            Kept::Lengths(lengths) => Ends::Lengths(lengths.values()),
        };
        GroupedIntervals::ordered(groups, self.starts.values(), ends, &self.order)
    }

    fn within(&self, window: Option<(i64, i64)>) -> GroupedIntervals<'_> {
        let all = self.all();
        if let Some(window) = window { all.within(window) } else { all }
    }
}

/// What tells the class of an interval, or its position where each is a class of its own.
fn classes(of: Option<&Frame>) -> Outcome<impl Fn(u32) -> usize> {
    let of = of.map(|of| of.links("class", NOWHERE)).transpose()?;
    let class = move |at: u32| match &of {
        Some(of) => of.get(at as usize).copied().unwrap_or(NOWHERE),
        None => at,
    };
    Ok(move |at| class(at) as usize)
}

/// The rows of a frame that lie in `[start_ns, end_ns)`, in whole or in part: `at`.
///
/// The frame has `start_ns`, and `dur_ns`, which may be null, or not at all: then it has moments.
#[pyfunction]
pub(crate) fn rows_within(py: Python<'_>, frame: Frame, start_ns: i64, end_ns: i64) -> PyResult<ArrowTable> {
    answer(py, || {
        let starts = frame.values::<Int64Type>("start_ns")?;
        let early = (0_u32..).zip(starts.iter().copied()).filter(|&(_, start)| start < end_ns);
        let found: Vec<u32> = if frame.has("dur_ns") {
            let lengths = frame.numbers("dur_ns")?;
            let length = |at: u32| lengths.get(at as usize).copied().unwrap_or_default();
            early
                .filter(|&(at, start)| start.saturating_add(length(at)) > start_ns)
                .map(|row| row.0)
                .collect()
        } else {
            early.filter(|&(_, start)| start >= start_ns).map(|row| row.0).collect()
        };
        table(vec![("at", Arc::new(UInt32Array::from(found)))])
    })
}

/// With which outermost span on its track each wait shares most time: `at`, null for none, and `shared_ns`.
///
/// Waits have `track`, `start_ns` and `until_ns`; spans `row`, `parent_row`, `track`, `start_ns` and `dur_ns`.
/// Those in `steps`, by `row`, do not count, as if nothing were in them.
#[pyfunction]
pub(crate) fn longest_spans(
    py: Python<'_>,
    waits: Frame,
    spans: Frame,
    steps: Frame,
) -> PyResult<ArrowTable> {
    answer(py, || {
        let steps = steps.links("row", NOWHERE)?;
        let last = steps.iter().copied().filter(|&row| row != NOWHERE).max();
        let mut is_step = vec![false; last.map_or(0, |row| row as usize + 1)];
        for &row in steps.iter() {
            if let Some(known) = is_step.get_mut(row as usize) {
                *known = true;
            }
        }
        let is_step = |row: u32| is_step.get(row as usize).copied().unwrap_or_default();
        let rows = spans.links("row", NOWHERE)?;
        let mut outermost: Vec<u32> = Vec::new();
        let mut first = 0;
        for part in spans.arrays_of::<UInt32Type>("parent_row")? {
            let own = rows.get(first as usize..).unwrap_or_default();
            for ((at, &row), &parent) in (first..).zip(own).zip(part.values()) {
                let is_inside = part.is_valid((at - first) as usize) && !is_step(parent);
                if !is_inside && !is_step(row) {
                    outermost.push(at);
                }
            }
            first += part.len() as u32;
        }
        let (tracks, starts) = (spans.links("track", NOWHERE)?, spans.numbers("start_ns")?);
        let lengths = spans.numbers("dur_ns")?;
        let order = some_by_start(outermost, Some(&tracks), &starts);
        let (asked, from) = (waits.links("track", NOWHERE)?, waits.values::<Int64Type>("start_ns")?);
        let until = waits.values::<Int64Type>("until_ns")?;
        let spans = GroupedIntervals::ordered(Some(&tracks), &starts, Ends::Lengths(&lengths), &order);
        let found = GroupedIntervals::new(Some(&asked), &from, Ends::Times(&until)).longest_shared(&spans);
        // Who is on no known thread shares none.
        let known =
            || found.iter().zip(asked.iter()).map(|(found, &track)| found.filter(|_| track != NOWHERE));
        table(vec![
            ("at", Arc::new(known().map(|found| Some(found?.0)).collect::<UInt32Array>())),
            ("shared_ns", Arc::new(known().map(|found| Some(found?.1)).collect::<Int64Array>())),
        ])
    })
}

/// Every change of the number of calls that wait in each group: `at`, the position of the work that ends
/// the wait, `at_ns`, `opens`, `depth`.
///
/// Works have a `launch`, the position of a call in `launches`, or null, their `start_ns`, and `group` unless
/// all are of one. A call waits from its own `start_ns` until its first work of a group starts.
#[pyfunction]
pub(crate) fn depth_changes(py: Python<'_>, works: Frame, launches: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let waits = Waits::read(&works, &launches)?;
        let (mut at, mut time, mut opens, mut depth) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        waits.intervals().each_change(|change| {
            at.push(waits.row(change.at));
            time.push(change.time);
            opens.push(change.opens);
            depth.push(change.depth);
        });
        table(vec![
            ("at", Arc::new(UInt32Array::from(at))),
            ("at_ns", Arc::new(Int64Array::from(time))),
            ("opens", Arc::new(BooleanArray::from(opens))),
            ("depth", Arc::new(Int64Array::from(depth))),
        ])
    })
}

/// How often and how long so many calls waited: `at`, `depth`, `changes`, `lasts_ns`.
///
/// The frames are those of `depth_changes`; answers come by group, then depth.
#[pyfunction]
pub(crate) fn depth_totals(py: Python<'_>, works: Frame, launches: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let waits = Waits::read(&works, &launches)?;
        let totals = waits.intervals().depth_totals();
        table(vec![
            ("at", numbers(totals.iter().map(|total| waits.row(total.at)))),
            ("depth", times(totals.iter().map(|total| total.depth))),
            ("changes", times(totals.iter().map(|total| total.changes))),
            ("lasts_ns", times(totals.iter().map(|total| total.duration))),
        ])
    })
}

/// When slices end that last so long.
pub(crate) fn ends_of(starts: &[i64], mut lengths: Vec<i64>) -> Vec<i64> {
    lengths.iter_mut().zip(starts).for_each(|(end, start)| *end = end.saturating_add(*start));
    lengths
}

/// Parts of groups: of each the position of an interval of its group, its start and its end.
fn spans(parts: &[(u32, i64, i64)]) -> Outcome<ArrowTable> {
    table(vec![
        ("at", numbers(parts.iter().map(|part| part.0))),
        ("start_ns", times(parts.iter().map(|part| part.1))),
        ("end_ns", times(parts.iter().map(|part| part.2))),
    ])
}

fn numbers(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}

fn times(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// From when to when calls wait for the works that they start.
struct Waits<'a> {
    groups: Option<Cow<'a, [u32]>>,
    starts: Cow<'a, [i64]>,
    ends: Cow<'a, [i64]>,
    /// The works that end a wait, unless all do.
    rows: Option<Vec<u32>>,
}

impl<'a> Waits<'a> {
    fn read(works: &'a Frame, launches: &'a Frame) -> Outcome<Self> {
        let mut groups = works.has("group").then(|| works.values::<UInt32Type>("group")).transpose()?;
        let mut ids = works.links("launch", NOWHERE)?;
        let mut ends = works.values::<Int64Type>("start_ns")?;
        let mut rows = None;
        if ids.contains(&NOWHERE) {
            let launched = (0_u32..).zip(ids.iter()).filter(|&(_, &id)| id != NOWHERE).map(|(at, _)| at);
            let launched: Vec<u32> = launched.collect();
            (ids, ends) = (kept(&ids, &launched), kept(&ends, &launched));
            groups = groups.map(|groups| kept(&groups, &launched));
            rows = Some(launched);
        }
        if let Some(first) = first_of_each(groups.as_deref(), &ids, &ends) {
            (ids, ends) = (kept(&ids, &first), kept(&ends, &first));
            groups = groups.map(|groups| kept(&groups, &first));
            rows = Some(rows.map_or_else(|| first.clone(), |rows| kept(&rows, &first).into_owned()));
        }
        let starts = match launches.values::<Int64Type>("start_ns")? {
            Cow::Borrowed(moments) => moments_at(moments, &ids),
            Cow::Owned(moments) => kept(&moments, &ids),
        };
        Ok(Self { groups, starts, ends, rows })
    }

    fn intervals(&self) -> GroupedIntervals<'_> {
        GroupedIntervals::new(self.groups.as_deref(), &self.starts, Ends::Times(&self.ends))
    }

    /// The row of the work at a position.
    fn row(&self, at: u32) -> u32 {
        self.rows.as_ref().and_then(|rows| rows.get(at as usize)).copied().unwrap_or(at)
    }
}

/// The values at places; where these follow one another they are there already.
fn moments_at<'a>(values: &'a [i64], places: &[u32]) -> Cow<'a, [i64]> {
    let first = places.first().map_or(0, |&place| place as usize);
    if (first..).zip(places).all(|(next, &place)| next == place as usize)
        && let Some(own) = values.get(first..first + places.len())
    {
        return Cow::Borrowed(own);
    }
    kept(values, places)
}

fn kept<'a, V: Copy>(values: &[V], rows: &[u32]) -> Cow<'a, [V]> {
    Cow::Owned(rows.iter().filter_map(|&row| values.get(row as usize).copied()).collect())
}
