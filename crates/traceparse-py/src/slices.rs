//! Slices in each other, and around moments.

use std::sync::Arc;

use arrow_array::Int64Array;
use framekernels::call_tree::{
    Covered, NONE, Nested, Points, Positions, Slices, innermost, lineage, marked_around, nest,
};
use framekernels::interval::{order_by_start, seek, some_by_start};
use pyo3::prelude::*;

use crate::answer::answer;
use crate::frame::Frame;
use crate::intervals::ends_of;
use crate::table::{ArrowTable, links, rows_at, table};

/// The interval around each: `row` of it, null for none; see `framekernels::call_tree::nest`.
///
/// Columns: `group`, `start_ns`, `dur_ns` (null counts as 0) and `row`.
#[pyfunction]
pub(crate) fn nest_slices(py: Python<'_>, slices: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let (groups, starts) = (slices.numbers("group")?, slices.numbers("start_ns")?);
        let (lengths, rows) = (slices.numbers("dur_ns")?, slices.links("row", NONE)?);
        let slices = Slices { groups: &groups, starts: &starts, lengths: &lengths, rows: &rows };
        let parents = nest(slices, |_| true);
        table(vec![("parent_row", rows_at(&rows, parents.into_iter()))])
    })
}

/// The innermost of `slices` on the thread of each of `points` and around it, as `row`, null for none; nothing
/// if the slices nest very deep. See `framekernels::call_tree::innermost`.
///
/// Columns: both need `track`, `start_ns` and `dur_ns` (null is 0), and `slices`, `row`, `parent_row` and
/// `counts`, without which all count.
#[pyfunction]
pub(crate) fn innermost_slices(py: Python<'_>, points: Frame, slices: Frame) -> PyResult<Option<ArrowTable>> {
    answer(py, || {
        let (rows, parents) = (slices.links("row", NONE)?, slices.links("parent_row", NONE)?);
        let (tracks, starts) = (slices.links("track", NONE)?, slices.numbers("start_ns")?);
        let lengths = slices.numbers("dur_ns")?;
        let nested =
            Nested { rows: &rows, parents: &parents, tracks: &tracks, starts: &starts, lengths: &lengths };
        let (tracks, starts) = (points.links("track", NONE)?, points.numbers("start_ns")?);
        let ends = ends_of(&starts, points.numbers("dur_ns")?.into_owned());
        let points = Points { tracks: &tracks, starts: &starts, ends: &ends };
        let has_counts = slices.has("counts");
        let counts = if has_counts { slices.flags("counts")? } else { Vec::new() };
        let is_counted = |at: u32| !has_counts || counts.get(at as usize).copied().unwrap_or(false);
        let found = innermost(points, nested, is_counted);
        found.map(|found| table(vec![("row", rows_at(&rows, found.into_iter()))])).transpose()
    })
}

/// The positions `at` of the slices of the `wanted` rows and of all around them, in order. See
/// `framekernels::call_tree::lineage`.
///
/// Columns: of `slices`, `row`, which ascends, and `parent_row` (null for none); of `wanted`, `row`.
#[pyfunction]
pub(crate) fn slice_lineage(py: Python<'_>, slices: Frame, wanted: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let (rows, parents) = (slices.links("row", NONE)?, slices.links("parent_row", NONE)?);
        table(vec![("at", links(lineage(&rows, &parents, &wanted.links("row", NONE)?)))])
    })
}

/// The nearest marked slice around each marked one: `parent_row`, null for none. See
/// `framekernels::call_tree::marked_around`.
///
/// Columns: `row`, `parent_row` (null for none) and `marked`.
#[pyfunction]
pub(crate) fn marked_parents(py: Python<'_>, slices: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let (rows, parents) = (slices.links("row", NONE)?, slices.links("parent_row", NONE)?);
        // Callers stand near those that they call.
        let positions = (!rows.is_sorted()).then(|| Positions::new(&rows));
        let near = |from: usize, row: u32| {
            let at = seek(&rows, from, |&other| other < row);
            if rows.get(at) == Some(&row) { at as u32 } else { NONE }
        };
        let parent = |at: usize| {
            let row = parents.get(at).copied().unwrap_or(NONE);
            positions.as_ref().map_or_else(|| near(at, row), |positions| positions.of(row))
        };
        let around = marked_around(&slices.flags("marked")?, parent);
        table(vec![("parent_row", rows_at(&rows, around.into_iter()))])
    })
}

/// The call that each of `slices` names, and whether it starts in it: `member`, twice the position of the
/// call, and 1 more where it does; null where none is named that is among `calls`.
///
/// Columns: of `slices`, `call_row` (null for none), `track` and `start_ns`; of `calls`, `row`, `track`,
/// `start_ns` and `dur_ns`.
#[pyfunction]
pub(crate) fn call_members(py: Python<'_>, slices: Frame, calls: Frame) -> PyResult<ArrowTable> {
    answer(py, || {
        let positions = Positions::new(&calls.links("row", NONE)?);
        let (tracks, starts) = (calls.links("track", NONE)?, calls.numbers("start_ns")?);
        let ends = ends_of(&starts, calls.numbers("dur_ns")?.into_owned());
        let around: Vec<(u32, i64, i64)> = tracks
            .iter()
            .zip(starts.iter())
            .zip(&ends)
            .map(|((&track, &start), &end)| (track, start, end))
            .collect();
        let named = slices.links("call_row", NONE)?;
        let (tracks, starts) = (slices.links("track", NONE)?, slices.numbers("start_ns")?);
        // Neighbours are in the same call as a rule.
        let (mut last, mut at) = (NONE, NONE);
        let members = named.iter().zip(tracks.iter().zip(starts.iter())).map(|(&call, (&track, &start))| {
            if call != last {
                (last, at) = (call, positions.of(call));
            }
            around.get(at as usize).map_or(NONE, |&(around, from, until)| {
                2 * at + u32::from(track == around && (from..until).contains(&start))
            })
        });
        table(vec![("member", links(members.collect()))])
    })
}

/// Of each of `calls`, how much of it the `slices` at these places cover that name it and the calls right
/// inside it together, `covered_ns`, and how many of these slices there are, `slices`.
///
/// Columns: of `calls`, `row`, `parent_row` (null for none), `start_ns` and `dur_ns`; of `slices`, `start_ns`,
/// `dur_ns` and `class`; of `keys`, by class, `call_row` (null for none); of `places`, `at`, in order.
#[pyfunction]
pub(crate) fn covered_calls(
    py: Python<'_>,
    calls: Frame,
    slices: Frame,
    keys: Frame,
    places: Frame,
) -> PyResult<ArrowTable> {
    answer(py, || {
        let rows = calls.links("row", NONE)?;
        let positions = Positions::new(&rows);
        let (starts, lengths) = (calls.numbers("start_ns")?, calls.numbers("dur_ns")?);
        let around: Vec<u32> =
            calls.links("parent_row", NONE)?.iter().map(|&row| positions.of(row)).collect();
        let of_class: Vec<u32> = keys.links("call_row", NONE)?.iter().map(|&row| positions.of(row)).collect();
        let (begins, lasts) = (slices.numbers("start_ns")?, slices.numbers("dur_ns")?);
        let (classes, places) = (slices.links("class", NONE)?, places.links("at", NONE)?);
        let call_of = |at: u32| {
            let of = classes.get(at as usize).and_then(|&class| of_class.get(class as usize));
            of.copied().unwrap_or(NONE)
        };
        let mut counts = vec![0_i64; rows.len()];
        for &at in places.iter() {
            if let Some(count) = counts.get_mut(call_of(at) as usize) {
                *count += 1;
            }
        }
        let mut covered = Covered::new(&starts, &lengths);
        let mut slices = some_by_start(places.into_owned(), None, &begins).into_iter().peekable();
        let time = |times: &[i64], at: u32| times.get(at as usize).copied().unwrap_or_default();
        for inner in order_by_start(None, &starts) {
            let start = time(&starts, inner);
            while let Some(at) = slices.next_if(|&at| time(&begins, at) <= start) {
                covered.add(call_of(at), time(&begins, at), time(&lasts, at));
            }
            let call = around.get(inner as usize).copied().unwrap_or(NONE);
            covered.add(call, start, time(&lengths, inner));
        }
        slices.for_each(|at| covered.add(call_of(at), time(&begins, at), time(&lasts, at)));
        table(vec![
            ("covered_ns", Arc::new(covered.into_lengths().collect::<Int64Array>())),
            ("slices", Arc::new(Int64Array::from(counts))),
        ])
    })
}
