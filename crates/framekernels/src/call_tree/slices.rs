//! Slices in each other, around moments, and in calls.

use arrow_array::RecordBatch;

use super::{Nested, Points, Slices, innermost, lineage, marked_around, nest};
use crate::frame::{Frame, NONE, Result, column, is_set, positions, rows_at, table};
use crate::interval::{order_by_start, some_by_start};
use crate::numbering::Positions;

/// The interval around each: its row as `parent_row`, null for none; see [`nest`].
///
/// Columns: `group`, `start_ns`, `dur_ns` (null is 0) and `row`.
pub fn nest_slices(slices: &Frame) -> Result<RecordBatch> {
    let (groups, starts) = (slices.i64_array("group")?, slices.i64_array("start_ns")?);
    let (lengths, rows) = (slices.i64_array("dur_ns")?, slices.u32_array("row")?);
    let parents = nest(Slices { groups: &groups, starts: &starts, lengths: &lengths, rows: &rows }, |_| true);
    table([("parent_row", rows_at(&rows, parents))])
}

/// The innermost of `slices` on the thread of each of `points` and around it, as `row`, null for none;
/// nothing if the slices nest very deep. See [`innermost`].
///
/// Columns: both need `track`, `start_ns` and `dur_ns` (null is 0), and `slices`, `row`, `parent_row` and
/// `counts`, without which all count.
pub fn innermost_slices(points: &Frame, slices: &Frame) -> Result<Option<RecordBatch>> {
    let (rows, parents) = (slices.u32_array("row")?, slices.u32_array("parent_row")?);
    let (tracks, starts) = (slices.u32_array("track")?, slices.i64_array("start_ns")?);
    let lengths = slices.i64_array("dur_ns")?;
    let nested =
        Nested { rows: &rows, parents: &parents, tracks: &tracks, starts: &starts, lengths: &lengths };
    let (tracks, starts) = (points.u32_array("track")?, points.i64_array("start_ns")?);
    let ends = ends_of(points)?;
    let points = Points { tracks: &tracks, starts: &starts, ends: &ends };
    let counts = slices.has("counts").then(|| slices.flags("counts")).transpose()?;
    let is_counted = |at: u32| counts.as_ref().is_none_or(|counts| is_set(counts, at as usize));
    innermost(points, nested, is_counted).map(|found| table([("row", rows_at(&rows, found))])).transpose()
}

/// The positions `at` of the slices of the `wanted` rows and of all around them, in order. See [`lineage`].
///
/// Columns: of `slices`, `row`, which ascends, and `parent_row` (null for none); of `wanted`, `row`.
pub fn slice_lineage(slices: &Frame, wanted: &Frame) -> Result<RecordBatch> {
    let (rows, parents) = (slices.u32_array("row")?, slices.u32_array("parent_row")?);
    table([("at", positions(lineage(&rows, &parents, &wanted.u32_array("row")?)))])
}

/// The nearest marked slice around each marked one: `parent_row`, null for none. See [`marked_around`].
///
/// Columns: `row`, `parent_row` (null for none) and `marked`.
pub fn marked_parents(slices: &Frame) -> Result<RecordBatch> {
    let (rows, parents) = (slices.u32_array("row")?, slices.u32_array("parent_row")?);
    let places = Positions::new(&rows);
    let parent = |at: usize| parents.get(at).map_or(NONE, |&row| places.of(row));
    let marked: Vec<bool> = slices.flags("marked")?.iter().collect();
    table([("parent_row", rows_at(&rows, marked_around(&marked, parent)))])
}

/// The call that each of `slices` names, and whether it starts in it: `member`, twice the position of the
/// call, and 1 more where it does; null where none is named that is among `calls`.
///
/// Columns: of `slices`, `call_row` (null for none), `track` and `start_ns`; of `calls`, `row`, `track`,
/// `start_ns` and `dur_ns`.
pub fn call_members(slices: &Frame, calls: &Frame) -> Result<RecordBatch> {
    let places = Positions::new(&calls.u32_array("row")?);
    let (tracks, starts, ends) = (calls.u32_array("track")?, calls.i64_array("start_ns")?, ends_of(calls)?);
    let named = slices.u32_array("call_row")?;
    let (own_tracks, own_starts) = (slices.u32_array("track")?, slices.i64_array("start_ns")?);
    // Neighbours are in the same call as a rule.
    let (mut last, mut at) = (NONE, NONE);
    let members = named.iter().zip(own_tracks.iter().zip(own_starts.iter()));
    let members = members.map(|(&call, (&track, start))| {
        if call != last {
            (last, at) = (call, places.of(call));
        }
        let place = at as usize;
        tracks.get(place).map_or(NONE, |&around| {
            2 * at + u32::from(track == around && (&starts[place]..&ends[place]).contains(&start))
        })
    });
    table([("member", positions(members.collect()))])
}

/// Of each of `calls`, how much of it the `slices` at these places cover that name it and the calls directly
/// inside it together, `covered_ns`, and how many of these slices there are, `slices`.
///
/// Columns: of `calls`, `row`, `parent_row` (null for none), `start_ns` and `dur_ns`; of `slices`,
/// `start_ns`, `dur_ns` and `class`; of `keys`, by class, `call_row` (null for none); of `places`, `at`, in
/// order.
pub fn covered_calls(calls: &Frame, slices: &Frame, keys: &Frame, places: &Frame) -> Result<RecordBatch> {
    let rows = calls.u32_array("row")?;
    let positions = Positions::new(&rows);
    let positions_of = |rows: &[u32]| -> Vec<u32> { rows.iter().map(|&row| positions.of(row)).collect() };
    let around = positions_of(&calls.u32_array("parent_row")?);
    let of_class = positions_of(&keys.u32_array("call_row")?);
    let (starts, lengths) = (calls.i64_array("start_ns")?, calls.i64_array("dur_ns")?);
    let (begins, lasts) = (slices.i64_array("start_ns")?, slices.i64_array("dur_ns")?);
    let (classes, places) = (slices.u32_array("class")?, places.u32_array("at")?);
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
    let mut slices = some_by_start(places.to_vec(), None, &begins).into_iter().peekable();
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
    table([("covered_ns", column(covered.into_lengths())), ("slices", column(counts))])
}

/// Calls by position, which grow covered as what lies in them is reported.
#[derive(Debug)]
pub(super) struct Covered<'a> {
    starts: &'a [i64],
    lengths: &'a [i64],
    /// Until when each is looked at, and how much of it until then is covered.
    covered: Vec<(i64, i64)>,
}

impl<'a> Covered<'a> {
    pub(super) fn new(starts: &'a [i64], lengths: &'a [i64]) -> Self {
        Self { starts, lengths, covered: starts.iter().map(|&start| (start, 0)).collect() }
    }

    /// Covers the call at `at` from `start` on for `length`, as far as it lasts then. What covers a call is reported
    /// in order of starts.
    pub(super) fn add(&mut self, at: u32, start: i64, length: i64) {
        let at = at as usize;
        let (Some(&from), Some(&lasts)) = (self.starts.get(at), self.lengths.get(at)) else { return };
        let Some((until, covered)) = self.covered.get_mut(at) else { return };
        let end = start.saturating_add(length).min(from.saturating_add(lasts));
        *covered += end.saturating_sub(start.max(*until)).max(0);
        *until = end.max(*until);
    }

    /// How much of each call is covered.
    pub(super) fn into_lengths(self) -> impl Iterator<Item = i64> {
        self.covered.into_iter().map(|(_, covered)| covered)
    }
}

/// When slices end that have `start_ns` and `dur_ns` (null is 0).
fn ends_of(slices: &Frame) -> Result<Vec<i64>> {
    let (starts, lengths) = (slices.i64_array("start_ns")?, slices.i64_array("dur_ns")?);
    Ok(starts.iter().zip(lengths.iter()).map(|(start, length)| start.saturating_add(*length)).collect())
}
