//! Slices in each other, around moments, and in calls.

use arrow_array::RecordBatch;

use super::{Nested, Points, Slices, innermost, marked_around, nest};
use crate::frame::{Frame, NONE, Result, is_set, rows_at, table};
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

/// When slices end that have `start_ns` and `dur_ns` (null is 0).
fn ends_of(slices: &Frame) -> Result<Vec<i64>> {
    let (starts, lengths) = (slices.i64_array("start_ns")?, slices.i64_array("dur_ns")?);
    Ok(starts.iter().zip(lengths.iter()).map(|(start, length)| start.saturating_add(*length)).collect())
}
