use super::{Mark, Slice, Source, Timeline, View};
use proptest::prelude::*;

fn slice(id: u32, track: u32, name: u32, start: i64, end: i64) -> (u32, Slice) {
    (track, Slice { name, start, end, id })
}

fn shown(slices: &[(u32, Slice)], start: i64, end: i64, pixels: u32) -> Vec<Mark> {
    let of = |track: u32| slices.iter().filter(|slice| slice.0 == track).map(|slice| slice.1.id).collect();
    let tracks = (0..8).map(of).collect();
    // Two halves, as if they came from two tables; the numbers of slices are their places.
    let source = |first: usize, slices: &[(u32, Slice)]| Source {
        first: first as u32,
        starts: slices.iter().map(|(_, slice)| slice.start).collect::<Vec<_>>().into(),
        lengths: slices
            .iter()
            .map(|(_, slice)| slice.end.saturating_sub(slice.start))
            .collect::<Vec<_>>()
            .into(),
        names: slices.iter().map(|(_, slice)| slice.name).collect::<Vec<_>>().into(),
    };
    let middle = slices.len() / 2;
    let sources = vec![source(0, &slices[..middle]), source(middle, &slices[middle..])];
    let timeline = Timeline::new(sources, tracks);
    let view = View::new(start, end, pixels).unwrap();
    let marks = timeline.show(&view, None, usize::MAX).unwrap();
    // As many marks are shown, and no more.
    assert_eq!(timeline.show(&view, None, marks.len()).as_ref(), Some(&marks));
    assert!(marks.is_empty() || timeline.show(&view, None, marks.len() - 1).is_none());
    // Some tracks show what they show among all.
    let some = [0, 3, 7, 99];
    let of_some: Vec<Mark> = marks.iter().copied().filter(|mark| some.contains(&mark.track)).collect();
    assert_eq!(timeline.show(&view, Some(&some), of_some.len()), Some(of_some));
    marks
}

#[test]
fn narrow_events_of_a_pixel_are_one_mark() {
    // A pixel is 100 ns wide. The event at 195 reaches into the next pixel.
    let slices = [
        slice(0, 7, 1, 110, 120),
        slice(1, 7, 2, 130, 160),
        slice(2, 7, 1, 165, 190),
        slice(3, 7, 2, 195, 205),
        slice(4, 7, 3, 300, 600),
    ];
    let marks = shown(&slices, 0, 1000, 10);
    let brief: Vec<_> = marks.iter().map(|m| (m.lane, m.start, m.end, m.busy, m.events)).collect();
    assert_eq!(brief, [(0, 110, 200, 70, 4), (0, 200, 205, 5, 0), (0, 300, 600, 300, 1)]);
    // Both names take 35 ns; that of the longer event stands for the pixel.
    assert_eq!((marks[0].dominant, marks[0].dominant_ns, marks[0].longest), (1, 35, 1));
}

#[test]
fn lanes_are_those_of_a_call_stack() {
    let slices = [
        slice(0, 0, 0, 0, 1000),
        slice(1, 0, 1, 100, 400),
        slice(2, 0, 2, 300, 600),
        slice(3, 0, 3, 500, 550),
        slice(4, 0, 4, 700, 800),
        slice(5, 1, 4, 700, 800),
    ];
    let lanes: Vec<_> = shown(&slices, 0, 1000, 1000).iter().map(|m| (m.track, m.longest, m.lane)).collect();
    assert_eq!(lanes, [(0, 0, 0), (0, 1, 1), (0, 4, 1), (0, 2, 2), (0, 3, 3), (1, 5, 0)]);
    // The same lanes when what put them there is out of view.
    let zoomed = shown(&slices, 500, 600, 100);
    assert_eq!(zoomed.iter().map(|m| (m.longest, m.lane)).collect::<Vec<_>>(), [(0, 0), (2, 2), (3, 3)]);
}

#[test]
fn extreme_times_do_not_overflow() {
    let slices =
        [slice(0, 0, 0, i64::MIN, i64::MAX), slice(1, 0, 0, 0, -5), slice(2, 0, 0, i64::MAX, i64::MAX)];
    let marks = shown(&slices, i64::MIN, i64::MAX, u32::MAX);
    assert_eq!(marks.len(), 2);
    assert!(View::new(5, 5, 10).is_none() && View::new(0, 5, 0).is_none());
}

fn slices() -> impl Strategy<Value = Vec<(u32, Slice)>> {
    let one = (0u32..3, 0u32..4, -20i64..220, 0i64..40);
    proptest::collection::vec(one, 0..60).prop_map(|all| {
        let numbered = all.into_iter().enumerate();
        numbered
            .map(|(id, (track, name, start, length))| slice(id as u32, track, name, start, start + length))
            .collect()
    })
}

proptest! {
    #[test]
    fn no_time_and_no_event_is_lost(slices in slices(), start in -10i64..100, span in 1i64..150, pixels in 1u32..200) {
        let end = start + span;
        let marks = shown(&slices, start, end, pixels);
        // Lanes hold disjoint events, so their busy time is a plain sum.
        let clip = |s: i64, e: i64| (e.min(end) - s.max(start)).max(0);
        let expected: i64 = slices.iter().map(|(_, s)| clip(s.start, s.end)).sum();
        let wide = |m: &Mark| m.events == 1 && m.busy == m.longest_ns && (m.start < start || m.end > end);
        let busy: i64 = marks.iter().map(|m| if wide(m) { clip(m.start, m.end) } else { m.busy }).sum();
        prop_assert_eq!(busy, expected);
        let starting = slices.iter().filter(|(_, s)| s.start >= start && s.start < end).count() as u32;
        let counted: u32 = marks.iter().filter(|m| m.start >= start).map(|m| m.events).sum();
        prop_assert_eq!(counted, starting);
        for (a, b) in marks.iter().zip(marks.iter().skip(1)) {
            prop_assert!((a.track, a.lane) < (b.track, b.lane) || (a.track, a.lane) == (b.track, b.lane) && a.end <= b.start);
        }
        for lane in marks.chunk_by(|a, b| (a.track, a.lane) == (b.track, b.lane)) {
            prop_assert!(lane.len() <= 2 * pixels as usize + 2);
        }
    }

    #[test]
    fn lanes_are_those_of_a_walk_from_the_beginning(slices in slices(), start in -10i64..100, span in 1i64..150) {
        let end = start + span;
        let mut expected = Vec::new();
        for track in 0..8 {
            let mut own: Vec<Slice> = slices.iter().filter(|s| s.0 == track).map(|s| s.1).collect();
            own.sort_by_key(|s| (s.start, std::cmp::Reverse(s.end), s.id));
            let mut open: Vec<i64> = Vec::new();
            for s in own {
                while open.last().is_some_and(|&end| end <= s.start) {
                    open.pop();
                }
                // One nanosecond is a pixel, so that every event with a duration is a mark.
                if s.start < end && s.end > start && s.end > s.start {
                    expected.push((track, open.len() as u32, s.id));
                }
                open.push(s.end);
            }
        }
        let marks = shown(&slices, start, end, span as u32);
        let mut lanes: Vec<_> =
            marks.iter().filter(|m| m.longest_ns > 0).map(|m| (m.track, m.lane, m.longest)).collect();
        lanes.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(lanes, expected);
    }
}
