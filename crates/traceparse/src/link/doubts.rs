//! What cannot be as it was recorded: events without a time, and GPU work that is outside of the recording or
//! longer than it can have run.
//!
//! The work of one stream runs one after the other, so work that contains a whole later one of its stream has
//! ended before. Overlap in part is real: stamps of the end of one and the beginning of the next are not taken
//! by one clock. So is work of no length inside another, in files of whole microseconds. Where nothing follows, work
//! that lasts longer than the whole capture has ended before, too.

use hashbrown::{HashMap, HashSet};

use super::order::{Extents, TrackOrder};
use super::untimed;
use crate::options::ReadOptions;
use crate::schema::{GpuOps, Table, Tables, UntimedGpuOpRow};
use crate::stats::{Code, Stats};
use crate::time::{HOUR_NS, NO_START};
use crate::trace::Trace;

/// What to read for what is wanted: how long work took is seen from all work of its stream.
pub(crate) fn with_neighbours(options: &ReadOptions) -> ReadOptions {
    let mut widened = options.clone();
    let is_asked = |column| options.wants("gpu_ops") && options.wants_column("gpu_ops", column);
    if options.wants("gpu_ops") {
        widened.add("gpu_ops", &["start_ns", "dur_ns"]);
    }
    if is_asked("dur_ns") || is_asked("recorded_dur_ns") {
        widened.add("gpu_ops", &["pid", "device", "context", "stream"]);
    }
    if options.wants("untimed_gpu_ops") {
        widened.add("gpu_ops", &["start_ns", "dur_ns", "kind", "name", "category", "device", "stream"]);
        widened.add("gpu_ops", &["correlation", "external_id", "arrow_row", "context", "pid", "bytes"]);
    }
    untimed::add_needed(&mut widened, options);
    widened
}

/// Takes out what has no usable time, and ends what is longer than it can be.
pub(crate) fn doubt(trace: &mut Trace) {
    take_untimed(&mut trace.tables, &mut trace.stats);
    untimed::take(trace);
    end_what_is_too_long(&mut trace.tables.gpu_ops, trace.capture, &mut trace.stats);
}

/// Moves work without a usable time into a table of its own.
fn take_untimed(tables: &mut Tables, stats: &mut Stats) {
    let works = &tables.gpu_ops;
    let usable = usable_times(works);
    for index in (0..works.len()).filter(|&index| !usable[index]) {
        let start = works.start_ns.values()[index];
        let dur = works.dur_ns.get(index);
        tables.untimed_gpu_ops.push(UntimedGpuOpRow {
            row: works.row.values()[index],
            kind: works.kind.values()[index],
            name: works.name.get(index),
            category: works.category.get(index),
            device: works.device.get(index),
            stream: works.stream.get(index),
            correlation: works.correlation.get(index),
            external_id: works.external_id.get(index),
            arrow_row: works.arrow_row.get(index),
            context: works.context.get(index),
            pid: works.pid.get(index),
            bytes: works.bytes.get(index),
            recorded_start_ns: Some(start).filter(|&start| start != NO_START),
            recorded_dur_ns: dur,
        });
    }
    tables.gpu_ops.keep_rows(&usable);
    // What has no start was counted where it was read.
    let elsewhere = tables.untimed_gpu_ops.recorded_start_ns.iter().flatten().count();
    stats.note_many(Code::UntimedWork, elsewhere as u64, None);
}

/// Which work has a time: not 0 without a length, where a recorder had none, and not far from where half of
/// the others are.
///
/// Far is ten times as long as that half takes, and an hour at least: work is never so long in a queue when a
/// recording begins or ends.
fn usable_times(works: &GpuOps) -> Vec<bool> {
    let starts = works.start_ns.values();
    let has_time = |(&start, dur): (&i64, Option<i64>)| {
        start != NO_START && (start != 0 || dur.is_none_or(|dur| dur != 0))
    };
    let mut usable: Vec<bool> = starts.iter().zip(works.dur_ns.iter()).map(has_time).collect();
    let extremes = (starts.iter().min(), starts.iter().max());
    if matches!(extremes, (Some(first), Some(last)) if last.saturating_sub(*first) <= HOUR_NS) {
        return usable;
    }
    let mut others: Vec<i64> =
        starts.iter().copied().filter(|&start| start != 0 && start != NO_START).collect();
    if others.is_empty() {
        return usable;
    }
    // Of three works the one in the middle is half of them.
    let quarter = (others.len() + 1) / 4;
    let low = *others.select_nth_unstable(quarter).1;
    let from_above = others.len() - 1 - quarter;
    let high = *others.select_nth_unstable(from_above).1;
    let far = high.saturating_sub(low).saturating_mul(10).max(HOUR_NS);
    for (usable, &start) in usable.iter_mut().zip(starts) {
        *usable &= start >= low.saturating_sub(far) && start <= high.saturating_add(far);
    }
    usable
}

/// Ends work that contains a whole later one of its stream where the next one begins, and what is longer than all of
/// `capture` where that ends; keeps in `recorded_dur_ns` what was recorded.
fn end_what_is_too_long(gpu_ops: &mut GpuOps, capture: Option<(i64, i64)>, stats: &mut Stats) {
    let mut ends = impossible(gpu_ops);
    if let Some((begin, end)) = capture {
        let mended: HashSet<u32> = ends.iter().map(|&(index, _)| index).collect();
        let starts = gpu_ops.start_ns.values().iter();
        let is_longer = |(index, (&start, dur)): (u32, (&i64, Option<i64>))| {
            (start < end && dur? > end.saturating_sub(begin) && !mended.contains(&index))
                .then_some((index, end))
        };
        ends.extend((0..).zip(starts.zip(gpu_ops.dur_ns.iter())).filter_map(is_longer));
    }
    if ends.is_empty() {
        return;
    }
    let mut durations: Vec<Option<i64>> = gpu_ops.dur_ns.iter().collect();
    let mut recorded = vec![None; durations.len()];
    for &(index, end) in &ends {
        let index = index as usize;
        recorded[index] = durations[index];
        durations[index] = Some(end - gpu_ops.start_ns.values()[index]);
    }
    gpu_ops.dur_ns = durations.into_iter().collect();
    gpu_ops.recorded_dur_ns = recorded.into_iter().collect();
    stats.note_many(Code::ImpossibleDuration, ends.len() as u64, None);
}

/// The work that contains a whole later one of its stream, by index, and where the next one begins.
fn impossible(gpu_ops: &GpuOps) -> Vec<(u32, i64)> {
    let extents = Extents::new(&gpu_ops.start_ns, &gpu_ops.dur_ns);
    let (streams, count) = streams(gpu_ops);
    // Without a length there is nothing to doubt, nor to doubt others by.
    let takes_time = |index: u32| streams[index as usize] != 0 && extents.end(index) > extents.start(index);
    let order = TrackOrder::new(&streams, count, extents, takes_time);
    let mut found = Vec::new();
    for (_, rows) in order.tracks() {
        // Of the work that begins later: when the next begins, and when the first ends.
        let (mut next_start, mut first_end) = (i64::MAX, i64::MAX);
        for rows in rows.chunk_by(|&a, &b| extents.start(a) == extents.start(b)).rev() {
            let mut first_end_here = first_end;
            for &row in rows {
                let is_doubted = extents.end(row) > first_end;
                if is_doubted {
                    found.push((row, next_start));
                }
                first_end_here = first_end_here.min(if is_doubted { next_start } else { extents.end(row) });
            }
            first_end = first_end_here;
            next_start = extents.start(rows[0]);
        }
    }
    found
}

/// A number for the stream of each row, 0 where it is not recorded, and how many numbers there are.
fn streams(gpu_ops: &GpuOps) -> (Vec<u32>, usize) {
    let mut numbers = HashMap::new();
    let number = |index| {
        let stream = gpu_ops.stream.get(index)?;
        let of = (gpu_ops.pid.get(index), gpu_ops.device.get(index)?, gpu_ops.context.get(index));
        let next = numbers.len() as u32 + 1;
        Some(*numbers.entry((of, stream)).or_insert(next))
    };
    let streams: Vec<u32> = (0..gpu_ops.start_ns.len()).map(number).map(Option::unwrap_or_default).collect();
    (streams, numbers.len() + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::end_what_is_too_long;
    use crate::schema::{GpuOpRow, GpuOps, Table};
    use crate::stats::{Code, Stats};

    /// A stream, a start and a duration.
    type Work = (Option<i64>, i64, Option<i64>);

    fn table(works: &[Work]) -> GpuOps {
        let mut table = GpuOps::default();
        for &(stream, start_ns, dur_ns) in works {
            table.push(GpuOpRow { device: Some(0), stream, start_ns, dur_ns, ..Default::default() });
        }
        table
    }

    fn mended(works: &[Work]) -> (Vec<Work>, Vec<Option<i64>>, u64) {
        let (mut table, mut stats) = (table(works), Stats::default());
        end_what_is_too_long(&mut table, None, &mut stats);
        let rows = 0..table.len();
        let count = stats.get(Code::ImpossibleDuration).map_or(0, |finding| finding.count);
        let works =
            rows.clone().map(|i| (table.stream.get(i), table.start_ns.values()[i], table.dur_ns.get(i)));
        (works.collect(), rows.map(|i| table.recorded_dur_ns.get(i)).collect(), count)
    }

    fn durations(works: &[(i64, i64)]) -> Vec<i64> {
        let works: Vec<Work> = works.iter().map(|&(start, dur)| (Some(7), start, Some(dur))).collect();
        mended(&works).0.into_iter().filter_map(|(.., dur)| dur).collect()
    }

    #[test]
    fn work_ends_where_the_next_of_its_stream_begins() {
        assert_eq!(durations(&[(0, 50), (60, 2_000_000), (120, 50), (180, 50)]), [50, 60, 50, 50]);
        // In any order of the source, and where several cannot be.
        assert_eq!(durations(&[(120, 50), (60, 900), (0, 1_000), (180, 50)]), [50, 60, 60, 50]);
        // The first is as long as the second after that was mended.
        assert_eq!(durations(&[(0, 15), (1, 20), (12, 4)]), [1, 11, 4]);
    }

    #[test]
    fn what_is_real_stays() {
        // Overlap in part, an end with the next one, no length, the same start.
        for works in [
            [(0, 13), (10, 10), (20, 5)],
            [(0, 13), (10, 3), (13, 5)],
            [(0, 13), (10, 0), (13, 5)],
            [(0, 13), (0, 3), (13, 5)],
        ] {
            assert_eq!(durations(&works), works.map(|(_, dur)| dur));
        }
    }

    #[test]
    fn streams_count_for_themselves() {
        let works =
            [(Some(7), 0, Some(100)), (Some(8), 10, Some(5)), (None, 20, Some(5)), (Some(7), 30, None)];
        assert_eq!(mended(&works), (works.to_vec(), vec![None; 4], 0));
        let mut table = table(&works[..1]);
        for (pid, device, context) in [(Some(1), 0, None), (None, 1, None), (None, 0, Some(2))] {
            let work = GpuOpRow { start_ns: 10, dur_ns: Some(5), stream: Some(7), ..Default::default() };
            table.push(GpuOpRow { pid, device: Some(device), context, ..work });
        }
        end_what_is_too_long(&mut table, None, &mut Stats::default());
        assert_eq!(table.dur_ns.get(0), Some(100));
    }

    fn works() -> impl Strategy<Value = Vec<Work>> {
        let stream = prop::option::weighted(0.9, 0..3_i64);
        let dur = prop::option::weighted(0.9, prop_oneof![0..4_i64, 0..40_i64]);
        prop::collection::vec((stream, 0..40_i64, dur), 0..40)
    }

    proptest! {
        #[test]
        fn no_work_contains_a_later_one_of_its_stream(works in works()) {
            let (found, recorded, count) = mended(&works);
            let end = |&(_, start, dur): &Work| start + dur.unwrap_or(0);
            let contains = |a: &Work, b: &Work| {
                a.0.is_some() && a.0 == b.0 && a.1 < b.1 && end(b) > b.1 && end(b) < end(a)
            };
            for a in &found {
                prop_assert!(!found.iter().any(|b| contains(a, b)), "{a:?} of {found:?}");
            }
            prop_assert_eq!(count, recorded.iter().flatten().count() as u64);
            for ((before, after), recorded) in works.iter().zip(&found).zip(&recorded) {
                let Some(recorded) = *recorded else {
                    prop_assert_eq!(before, after);
                    continue;
                };
                // What was shortened ends where the next one with a length begins.
                let later = works.iter().filter(|b| b.0 == before.0 && b.1 > before.1 && end(b) > b.1);
                prop_assert_eq!(Some(end(after)), later.map(|b| b.1).min());
                prop_assert_eq!(before.2, Some(recorded));
                prop_assert!(found.iter().any(|b| contains(before, b)));
            }
            prop_assert_eq!(mended(&found).0, found);
        }
    }
}
