//! What intervals of several groups cover.
//!
//! A frame has the columns `group`, `start_ns` and `end_ns`, none null. Answers name a group by the
//! position of one of its intervals, in the column `at`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, UInt8Array, UInt32Array};
use pyo3::prelude::*;
use traceparse::interval::{GroupedIntervals, first_of_each, order_by_start};
use traceparse::numbering::{NOWHERE, places};

use crate::answer::answer;
use crate::frame::{Frame, Outcome};
use crate::table::{ArrowTable, table};

/// Intervals of several groups, sorted once for all that is asked of them.
///
/// In place of `end_ns` they may have `dur_ns`, which may be null. A `window` is a first and a last moment:
/// what lies outside counts nothing.
#[pyclass(module = "kernelscope._traceparse", frozen)]
pub(crate) struct Intervals {
    groups: UInt32Array,
    starts: Int64Array,
    ends: Ends,
    order: Vec<u32>,
}

/// When intervals end, as a frame has it.
#[derive(Clone)]
enum Ends {
    Times(Int64Array),
    Lengths(Int64Array),
}

#[pymethods]
impl Intervals {
    #[new]
    fn new(py: Python<'_>, frame: Frame) -> PyResult<Self> {
        answer(py, || {
            let (groups, starts) = (frame.kept_links("group", NOWHERE)?, frame.kept_numbers("start_ns")?);
            let ends = if frame.has("end_ns") {
                Ends::Times(frame.kept_numbers("end_ns")?)
            } else {
                Ends::Lengths(frame.kept_numbers("dur_ns")?)
            };
            let order = order_by_start(groups.values(), starts.values());
            Ok(Self { groups, starts, ends, order })
        })
    }

    /// The union of each group: `at`, `start_ns`, `end_ns`, in order.
    fn union(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || spans(&self.all(&self.ends()).union()))
    }

    /// The first start and the last end of each group: `at`, `start_ns`, `end_ns`.
    fn extents(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || spans(&self.all(&self.ends()).extents()))
    }

    /// For how long each `level`, or one before it, runs in each group: `at`, `level`, `covered_ns`.
    fn covered(&self, py: Python<'_>, levels: Frame, window: Option<(i64, i64)>) -> PyResult<ArrowTable> {
        answer(py, || {
            let levels = levels.values::<UInt8Type>("level")?;
            let found = self.inside(window, |intervals| intervals.covered(&levels));
            table(vec![
                ("at", numbers(found.iter().map(|part| part.0))),
                ("level", Arc::new(found.iter().map(|part| part.1).collect::<UInt8Array>())),
                ("covered_ns", times(found.iter().map(|part| part.2))),
            ])
        })
    }

    /// The gaps of each group: `at`, the position of the interval that ends each, `start_ns`, `dur_ns`, and
    /// of the call that started it, where that is known, `launch_ns` and `track`.
    ///
    /// Intervals have the `launch_row` of `launched`; calls have `row`, `start_ns` and `track`.
    fn gaps(&self, py: Python<'_>, launched: Frame, calls: Frame) -> PyResult<ArrowTable> {
        answer(py, || {
            let gaps = self.all(&self.ends()).gaps();
            let launches = launched.links("launch_row", NOWHERE)?;
            let row = |at: u32| launches.get(at as usize).copied().unwrap_or(NOWHERE);
            let launched: Vec<u32> = gaps.iter().map(|gap| row(gap.0)).collect();
            let found = places(&calls.links("row", NOWHERE)?, &launched);
            drop(launched);
            let (moments, tracks) = (calls.values::<Int64Type>("start_ns")?, calls.links("track", NOWHERE)?);
            let starts = self.starts.values();
            let lasts = |&(at, before): &(u32, i64)| {
                starts.get(at as usize).map_or(0, |start| start.saturating_sub(before))
            };
            let moment = |&at: &u32| moments.get(at as usize).copied().unwrap_or_default();
            let track = |&at: &u32| tracks.get(at as usize).copied().unwrap_or(NOWHERE);
            let moments: Vec<i64> = found.iter().map(moment).collect();
            let tracks: Vec<u32> = found.iter().map(track).collect();
            let launched = found.iter().map(|&at| at != NOWHERE).collect();
            let tracked = tracks.iter().map(|&track| track != NOWHERE).collect();
            table(vec![
                ("at", numbers(gaps.iter().map(|gap| gap.0))),
                ("start_ns", times(gaps.iter().map(|gap| gap.1))),
                ("dur_ns", times(gaps.iter().map(lasts))),
                ("launch_ns", Arc::new(Int64Array::new(moments.into(), Some(launched)))),
                ("track", Arc::new(UInt32Array::new(tracks.into(), Some(tracked)))),
            ])
        })
    }

    /// The integral of the summed `share`, of which at most 1 counts: `at`, `filled_ns`.
    ///
    /// Intervals that take no time or have no share above 0 are left out.
    fn filled(&self, py: Python<'_>, shares: Frame, window: Option<(i64, i64)>) -> PyResult<ArrowTable> {
        answer(py, || {
            let shares = shares.fractions("share")?;
            let found = self.inside(window, |intervals| intervals.filled(&shares));
            table(vec![
                ("at", numbers(found.iter().map(|part| part.0))),
                ("filled_ns", Arc::new(found.iter().map(|part| part.1).collect::<Float64Array>())),
            ])
        })
    }

    /// Which intervals of a group follow one another with the same `label`: `run`, by position.
    fn runs(&self, py: Python<'_>, labels: Frame) -> PyResult<ArrowTable> {
        answer(py, || {
            let runs = self.all(&self.ends()).runs(&labels.values::<UInt32Type>("label")?);
            table(vec![("run", Arc::new(UInt32Array::from(runs)))])
        })
    }

    /// Some of them, those that are `marked`, in the same groups.
    fn part(&self, py: Python<'_>, marks: Frame) -> PyResult<Self> {
        answer(py, || {
            let marked = marks.flags("marked")?;
            let is_marked = |at: &u32| marked.get(*at as usize).copied().unwrap_or_default();
            Ok(Self {
                groups: self.groups.clone(),
                starts: self.starts.clone(),
                ends: self.ends.clone(),
                order: self.order.iter().copied().filter(is_marked).collect(),
            })
        })
    }

    /// The number of each group, `group`, and the position of an interval of it, `at`.
    fn groups(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        answer(py, || {
            let groups = self.groups.values();
            let same = |&a: &u32, &b: &u32| groups.get(a as usize) == groups.get(b as usize);
            let first: Vec<u32> =
                self.order.chunk_by(same).filter_map(|group| group.first().copied()).collect();
            table(vec![
                ("group", numbers(first.iter().filter_map(|&at| groups.get(at as usize).copied()))),
                ("at", numbers(first.iter().copied())),
            ])
        })
    }

    /// How much of each interval those of the same group of others cover: `hidden_ns`.
    fn hidden_by(&self, py: Python<'_>, cover: &Intervals) -> PyResult<ArrowTable> {
        answer(py, || {
            let hidden = self.all(&self.ends()).hidden_by(&cover.all(&cover.ends()));
            table(vec![("hidden_ns", Arc::new(Int64Array::from(hidden)))])
        })
    }
}

impl Intervals {
    fn all<'a>(&'a self, ends: &'a [i64]) -> GroupedIntervals<'a> {
        GroupedIntervals::ordered(self.groups.values(), self.starts.values(), ends, &self.order)
    }

    /// When each interval ends.
    fn ends(&self) -> Cow<'_, [i64]> {
        match &self.ends {
            Ends::Times(ends) => Cow::Borrowed(ends.values()),
            Ends::Lengths(lengths) => Cow::Owned(ends_of(self.starts.values(), lengths.values().to_vec())),
        }
    }

    /// What comes of the parts of the intervals that lie in a window.
    fn inside<T>(&self, window: Option<(i64, i64)>, of: impl FnOnce(&GroupedIntervals<'_>) -> T) -> T {
        let Some((first, last)) = window else { return of(&self.all(&self.ends())) };
        // What lies outside ends before it starts; clipped starts are in the same order.
        let starts: Vec<i64> = self.starts.values().iter().map(|&start| start.max(first)).collect();
        let mut ends = self.ends().into_owned();
        ends.iter_mut().for_each(|end| *end = last.min(*end));
        of(&GroupedIntervals::ordered(self.groups.values(), &starts, &ends, &self.order))
    }
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
        let (rows, parents) = (spans.links("row", NOWHERE)?, spans.links("parent_row", NOWHERE)?);
        let places = rows.iter().zip(parents.iter()).zip(0_u32..);
        let outermost: Vec<u32> = places
            .filter(|&((&row, &parent), _)| (parent == NOWHERE || is_step(parent)) && !is_step(row))
            .map(|(_, at)| at)
            .collect();
        let tracks = kept(&spans.links("track", NOWHERE)?, &outermost);
        let starts = kept(&spans.numbers("start_ns")?, &outermost);
        let ends = ends_of(&starts, kept(&spans.numbers("dur_ns")?, &outermost).into_owned());
        let (asked, from) = (waits.links("track", NOWHERE)?, waits.values::<Int64Type>("start_ns")?);
        let until = waits.values::<Int64Type>("until_ns")?;
        let found = GroupedIntervals::new(&asked, &from, &until)
            .longest_shared(&GroupedIntervals::new(&tracks, &starts, &ends));
        // Who is on no known thread shares none.
        let known =
            || found.iter().zip(asked.iter()).map(|(found, &track)| found.filter(|_| track != NOWHERE));
        let at = known().map(|found| outermost.get(found?.0 as usize).copied());
        table(vec![
            ("at", Arc::new(at.collect::<UInt32Array>())),
            ("shared_ns", Arc::new(known().map(|found| Some(found?.1)).collect::<Int64Array>())),
        ])
    })
}

/// Every change of the number of open intervals of each group: `at`, `at_ns`, `opens`, `depth`.
///
/// The frame has the column `id`, too: of the intervals of a group that share one, that counts which
/// ends first.
#[pyfunction]
pub(crate) fn depth_changes(py: Python<'_>, frame: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let columns = Columns::read(&frame)?.first_by_end()?;
        let (mut at, mut time, mut opens, mut depth) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        columns.intervals().each_change(|change| {
            at.push(columns.row(change.at));
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

/// How often and how long so many intervals were open: `at`, `depth`, `changes`, `lasts_ns`.
///
/// The frame is that of `depth_changes`; answers come by group, then depth.
#[pyfunction]
pub(crate) fn depth_totals(py: Python<'_>, frame: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let columns = Columns::read(&frame)?.first_by_end()?;
        let totals = columns.intervals().depth_totals();
        table(vec![
            ("at", numbers(totals.iter().map(|total| columns.row(total.at)))),
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

/// The columns of a frame.
struct Columns<'a> {
    frame: &'a Frame,
    groups: Cow<'a, [u32]>,
    starts: Cow<'a, [i64]>,
    ends: Cow<'a, [i64]>,
    /// The rows of the frame that are left, if some are not.
    rows: Option<Vec<u32>>,
}

impl<'a> Columns<'a> {
    fn read(frame: &'a Frame) -> Outcome<Self> {
        Ok(Self {
            frame,
            groups: frame.values::<UInt32Type>("group")?,
            starts: frame.values::<Int64Type>("start_ns")?,
            ends: frame.values::<Int64Type>("end_ns")?,
            rows: None,
        })
    }

    /// Only the intervals that end first among those of their group that share an `id`.
    fn first_by_end(mut self) -> Outcome<Self> {
        let ids = self.frame.values::<UInt32Type>("id")?;
        let rows = first_of_each(&self.groups, &ids, &self.ends);
        if rows.len() < self.groups.len() {
            self.groups = kept(&self.groups, &rows);
            self.starts = kept(&self.starts, &rows);
            self.ends = kept(&self.ends, &rows);
            self.rows = Some(rows);
        }
        Ok(self)
    }

    fn intervals(&self) -> GroupedIntervals<'_> {
        GroupedIntervals::new(&self.groups, &self.starts, &self.ends)
    }

    /// The row of the frame at which an interval is.
    fn row(&self, at: u32) -> u32 {
        self.rows.as_ref().and_then(|rows| rows.get(at as usize)).copied().unwrap_or(at)
    }
}

fn kept<'a, V: Copy>(values: &[V], rows: &[u32]) -> Cow<'a, [V]> {
    Cow::Owned(rows.iter().filter_map(|&row| values.get(row as usize).copied()).collect())
}
