//! The innermost slice around moments and other slices.

use hashbrown::HashMap;

use super::NONE;
use super::nest::Slices;
use crate::numbering::Positions;

/// Calls nest a dozen deep; how many one looks at on the way up.
const MOST_CLIMBS: u32 = 64;

/// What is looked for: points by position, with their threads, their starts and where they end.
#[derive(Debug, Clone, Copy)]
pub struct Points<'a> {
    /// The thread of each, [`NONE`] for none.
    pub tracks: &'a [u32],
    /// First instants.
    pub starts: &'a [i64],
    /// Instants just after the last; the start for a moment.
    pub ends: &'a [i64],
}

/// What is looked through: slices by position.
#[derive(Debug, Clone, Copy)]
pub struct Nested<'a> {
    /// Their numbers, which ascend.
    pub rows: &'a [u32],
    /// The numbers of the slices around them, [`NONE`] for none.
    pub parents: &'a [u32],
    /// Their threads, [`NONE`] for none.
    pub tracks: &'a [u32],
    /// First instants.
    pub starts: &'a [i64],
    /// From the first instant to just after the last.
    pub lengths: &'a [i64],
}

impl Nested<'_> {
    fn end(&self, at: usize) -> Option<i64> {
        Some(self.starts.get(at)?.saturating_add(*self.lengths.get(at)?))
    }

    /// Whether slices come in order of start, those that start together the innermost last.
    fn are_in_order(&self) -> bool {
        let times = self.starts.iter().zip(self.lengths).zip(self.rows);
        times.is_sorted_by(|((a, a_length), a_row), ((b, b_length), b_row)| {
            a < b || a == b && (b_length, a_row) <= (a_length, b_row)
        })
    }

    /// Their positions in that order.
    fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.starts.len() as u32).collect();
        let (starts, lengths, rows) = (self.starts, self.lengths, self.rows);
        let slices = Slices::<u32> { groups: &[], starts, lengths, rows };
        order.sort_by_key(|&at| slices.key(at));
        order
    }
}

/// The position of the innermost slice of the same thread around each point that `counts`; [`NONE`] if there
/// is none. Nothing if slices nest so deep that this would take long.
///
/// From the slice that started last it goes up to the first that ends behind the start of the point, and no
/// earlier than the point does.
#[must_use]
pub fn innermost(points: Points<'_>, slices: Nested<'_>, counts: impl Fn(u32) -> bool) -> Option<Vec<u32>> {
    let mut found = last_started(points, slices);
    let places = Positions::new(slices.rows);
    for (place, (&start, &until)) in found.iter_mut().zip(points.starts.iter().zip(points.ends)) {
        let mut climbs = 0;
        while let Some(end) = slices.end(*place as usize) {
            if end > start && end >= until && counts(*place) {
                break;
            }
            climbs += 1;
            let above = slices.parents.get(*place as usize).filter(|&&row| row != NONE);
            *place = above.map_or(NONE, |&row| places.of(row));
            if climbs == MOST_CLIMBS && *place != NONE {
                return None;
            }
        }
    }
    Some(found)
}

/// The slice that started last on each point's thread, before the point or with it.
fn last_started(points: Points<'_>, slices: Nested<'_>) -> Vec<u32> {
    let start = |at: u32| points.starts.get(at as usize).copied().unwrap_or_default();
    let mut asked: Vec<u32> = (0..points.starts.len() as u32).collect();
    if !points.starts.is_sorted() {
        asked.sort_by_key(|&at| start(at));
    }
    let mut found = vec![NONE; asked.len()];
    let order = if slices.are_in_order() { Vec::new() } else { slices.in_order() };
    let in_order = |at: u32| order.get(at as usize).copied().unwrap_or(at);
    let mut started = (0..slices.starts.len() as u32).map(in_order).peekable();
    let mut last = Last::default();
    for at in asked {
        let moment = start(at);
        let has_started =
            |slice: &u32| slices.starts.get(*slice as usize).is_some_and(|&start| start <= moment);
        while let Some(slice) = started.next_if(has_started) {
            *last.of(slices.tracks.get(slice as usize).copied().unwrap_or(NONE)) = slice;
        }
        let track = points.tracks.get(at as usize).copied().unwrap_or(NONE);
        if let Some(found) = found.get_mut(at as usize).filter(|_| track != NONE) {
            *found = *last.of(track);
        }
    }
    found
}

/// The slice that started last on each thread.
#[derive(Debug, Default)]
struct Last {
    /// Thread and slice.
    of_tracks: Vec<(u32, u32)>,
    places: HashMap<u32, usize>,
    /// The place that was asked for last.
    place: usize,
    none: u32,
}

impl Last {
    fn of(&mut self, track: u32) -> &mut u32 {
        // Neighbours are mostly of one thread.
        if self.of_tracks.get(self.place).is_none_or(|&(known, _)| known != track) {
            self.place = *self.places.entry(track).or_insert(self.of_tracks.len());
            if self.place == self.of_tracks.len() {
                self.of_tracks.push((track, NONE));
            }
        }
        self.of_tracks.get_mut(self.place).map_or(&mut self.none, |(_, slice)| slice)
    }
}
