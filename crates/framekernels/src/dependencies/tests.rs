//! Graphs of small traces, and laws of graphs of any.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{DependencyGraph, EDGES, Replay, longest_paths};
use crate::frame::{Frame, NONE, column, frame, positions};

/// Events of a host and of streams, and what waits for what.
#[derive(Debug, Clone, Default)]
struct Events {
    /// Thread, start, duration and the thread that waits.
    host: Vec<(i64, i64, i64, Option<i64>)>,
    /// Stream, start, duration, call and whether it is a copy.
    gpu: Vec<(u32, i64, i64, u32, bool)>,
    /// Call, stream that is waited for, the call that recorded the event, and stream that waits.
    waits: Vec<[u32; 4]>,
    /// Calls that record an event, or let a stream wait for one.
    events: Vec<(u32, bool)>,
    /// Events that calls handed to other threads.
    handed: Vec<(u32, u32)>,
    /// Launches without an operation.
    missing: std::ops::Range<u32>,
}

impl Events {
    fn graph(&self) -> Arc<DependencyGraph> {
        let waiting = (0..).zip(&self.host).filter_map(|(at, event)| Some((at, event.3?)));
        let callers: Vec<(u32, i64)> = waiting.collect();
        let launches = |at: u32| self.missing.contains(&at) || self.gpu.iter().any(|event| event.3 == at);
        let host = frame([
            ("row", positions((0..self.host.len() as u32).collect())),
            ("track", column(self.host.iter().map(|event| event.0))),
            ("start_ns", column(self.host.iter().map(|event| event.1))),
            ("dur_ns", column(self.host.iter().map(|event| event.2))),
            ("is_operator", column(self.host.iter().map(|event| event.2 % 2 == 1))),
            ("class", column((0..).zip(&self.host).map(|(at, _)| if launches(at) { 3_u8 } else { 0 }))),
        ]);
        let callers = frame([
            ("event", positions(callers.iter().map(|caller| caller.0).collect())),
            ("track", column(callers.iter().map(|caller| caller.1))),
        ]);
        let gpu = frame([
            ("row", positions((0..self.gpu.len() as u32).collect())),
            ("stream", positions(self.gpu.iter().map(|event| event.0).collect())),
            ("process", column(self.gpu.iter().map(|_| 0_u32))),
            ("start_ns", column(self.gpu.iter().map(|event| event.1))),
            ("dur_ns", column(self.gpu.iter().map(|event| event.2))),
            ("launch", positions(self.gpu.iter().map(|event| event.3).collect())),
            ("is_copy", column(self.gpu.iter().map(|event| event.4))),
        ]);
        let of_waits = |at: usize| positions(self.waits.iter().map(|wait| wait[at]).collect());
        let waits = frame([
            ("call", of_waits(0)),
            ("process", column(self.waits.iter().map(|_| 0_u32))),
            ("on", of_waits(1)),
            ("until", of_waits(2)),
            ("stream", of_waits(3)),
            ("only_waits", column(self.waits.iter().map(|_| true))),
        ]);
        let events = frame([
            ("call", positions(self.events.iter().map(|event| event.0).collect())),
            ("is_wait", column(self.events.iter().map(|event| event.1))),
        ]);
        let handed = frame([
            ("event", positions(self.handed.iter().map(|pair| pair.0).collect())),
            ("call", positions(self.handed.iter().map(|pair| pair.1).collect())),
        ]);
        Arc::new(DependencyGraph::new(&host, &callers, &gpu, &waits, &events, &handed).unwrap())
    }

    /// Start and end of every event.
    fn times(&self) -> Vec<(i64, i64)> {
        let host = self.host.iter().map(|event| (event.1, event.1 + event.2));
        host.chain(self.gpu.iter().map(|event| (event.1, event.1 + event.2))).collect()
    }
}

fn numbers(batch: &RecordBatch, name: &str) -> Vec<i64> {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn replayed(events: &Events) -> Vec<(i64, i64)> {
    changed(&events.graph(), &vec![(1.0, 1.0); events.times().len()])
}

/// Start and end of every event, if some take longer or shorter.
fn changed(graph: &Arc<DependencyGraph>, changes: &[(f64, f64)]) -> Vec<(i64, i64)> {
    without(graph, changes, &[])
}

/// The same, without parts of thread 1.
fn without(graph: &Arc<DependencyGraph>, factors: &[(f64, f64)], parts: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let skipped = frame([
        ("track", column(parts.iter().map(|_| 1_i64))),
        ("start_ns", column(parts.iter().map(|part| part.0))),
        ("end_ns", column(parts.iter().map(|part| part.1))),
    ]);
    let [own, waiting] = [0, 1].map(|at| column(factors.iter().map(|by| [by.0, by.1][at])));
    let changes = frame([("own", own), ("waiting", waiting)]);
    changed_times(graph, &changes, Some(&skipped))
}

/// Start and end of every event, if nothing waits for events that are freed until the next phase.
fn freeing(graph: &Arc<DependencyGraph>, freed: &[bool], phases: &[u32]) -> Vec<(i64, i64)> {
    let ones = || column(freed.iter().map(|_| 1.0));
    let changes = frame([
        ("own", ones()),
        ("waiting", ones()),
        ("freed", column(freed.iter().copied())),
        ("phase", positions(phases.to_vec())),
    ]);
    changed_times(graph, &changes, None)
}

fn changed_times(graph: &Arc<DependencyGraph>, changes: &Frame, skipped: Option<&Frame>) -> Vec<(i64, i64)> {
    let replay = Replay::new(Arc::clone(graph), Some(changes), skipped, false);
    let batch = replay.unwrap().times().unwrap();
    numbers(&batch, "start_ns").into_iter().zip(numbers(&batch, "end_ns")).collect()
}

/// Start, duration, event and edge of each segment.
fn path(graph: &Arc<DependencyGraph>, start: i64, end: i64) -> Vec<(i64, i64, Option<u32>, &'static str)> {
    let replay = Replay::new(Arc::clone(graph), None, None, false).unwrap();
    let batch = replay.critical_paths(&[(start, end)], &[]).unwrap();
    let events = batch.column_by_name("event").unwrap().as_primitive::<UInt32Type>().iter();
    let edges = batch.column_by_name("edge").unwrap().as_primitive::<UInt8Type>().values().to_vec();
    let times = numbers(&batch, "start_ns").into_iter().zip(numbers(&batch, "dur_ns"));
    let named = edges.into_iter().map(|edge| EDGES[edge as usize]);
    times.zip(events.zip(named)).map(|((start, dur), (event, edge))| (start, dur, event, edge)).collect()
}

/// A step with two kernels, of which the second waits for the first, and a synchronisation.
fn step() -> Events {
    Events {
        host: vec![
            (1, 0, 200, None),  // 0: an operator
            (1, 10, 10, None),  // 1: its launch
            (1, 30, 10, None),  // 2: another launch
            (1, 50, 140, None), // 3: a synchronisation
        ],
        gpu: vec![(7, 25, 50, 1, false), (7, 77, 103, 2, false)],
        waits: vec![[3, NONE, NONE, NONE]],
        ..Events::default()
    }
}

#[test]
fn a_synchronisation_leads_to_the_kernels_before_it() {
    let expected = [
        (0, 10, Some(0), "host"),
        (10, 15, Some(4), "launch"),
        (25, 50, Some(4), "execution"),
        (75, 2, Some(5), "stream"),
        (77, 103, Some(5), "execution"),
        (180, 10, Some(3), "synchronisation"),
        (190, 10, Some(0), "host"),
    ];
    assert_eq!(path(&step().graph(), 0, 200), expected);
    // A window that is only a part of it, or more than that.
    assert_eq!(path(&step().graph(), 60, 150)[0], (60, 15, Some(4), "execution"));
    assert_eq!(path(&step().graph(), -5, 210)[0], (-5, 5, None, "unknown"));
    assert_eq!(path(&step().graph(), -5, 210).last(), Some(&(200, 10, None, "unknown")));
    // The path to the start of the second kernel, of which the window has a part.
    let replay = Replay::new(step().graph(), None, None, false).unwrap();
    let batch = replay.critical_paths(&[(20, 77)], &[Some(5)]).unwrap();
    assert_eq!(numbers(&batch, "start_ns"), [20, 25, 75]);
}

#[test]
fn a_synchronisation_after_the_kernels_is_the_work_of_the_host() {
    let mut events = step();
    events.host[3] = (1, 182, 8, None);
    assert_eq!(
        path(&events.graph(), 0, 200),
        [
            (0, 10, Some(0), "host"),
            (10, 10, Some(1), "host"),
            (20, 10, Some(0), "host"),
            (30, 10, Some(2), "host"),
            (40, 142, Some(0), "host"),
            (182, 8, Some(3), "host"),
            (190, 10, Some(0), "host"),
        ]
    );
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let mut events = step();
    events.host = vec![(1, 0, 5, None), (1, 10, 5, None), (1, 20, 5, None), (1, 30, 5, None)];
    // The event is recorded after the first launch, and awaited before the second.
    events.gpu = vec![(7, 12, 100, 0, false), (8, 115, 20, 3, false)];
    events.waits = vec![[2, 7, 1, 8]];
    let expected =
        [(12, 100, Some(4), "execution"), (112, 3, Some(5), "event"), (115, 20, Some(5), "execution")];
    assert_eq!(path(&events.graph(), 12, 135), expected);
    // An event of a stream without operations holds up nobody.
    events.waits = vec![[2, 9, 1, 8]];
    assert_eq!(path(&events.graph(), 30, 135)[0], (30, 85, Some(5), "launch"));
}

#[test]
fn a_stream_waits_for_an_event_that_is_only_a_call() {
    let mut events = collective(8);
    events.waits.clear();
    // A record and a wait before the launch of the collective, and others before that of the second kernel.
    events.host = (0..7).map(|at| (1, at, 1, None)).collect();
    events.gpu = vec![(7, 10, 90, 0, false), (8, 150, 200, 3, false), (7, 380, 100, 6, false)];
    events.events = vec![(1, false), (2, true), (4, false), (5, true)];
    let graph = events.graph();
    // The collective waited for the first kernel, and the second kernel for the collective.
    let mut factors = vec![(1.0, 1.0); 10];
    factors[7].0 = 2.0;
    assert_eq!(changed(&graph, &factors)[7..], [(10, 190), (240, 440), (470, 570)]);
    // Without them, only the launch is known.
    events.events.clear();
    assert_eq!(changed(&events.graph(), &factors)[8], (150, 350));
}

#[test]
fn nodes_in_a_circle_go_on_as_recorded() {
    let nodes = frame([("recorded_ns", column([10_i64, 20, 30, 40]))]);
    let edges = frame([
        ("target", positions(vec![0, 1, 2, 1, 3])),
        ("source", positions(vec![NONE, 0, 1, 2, 2])),
        ("length_ns", column([12_i64, 10, 10, 5, 20])),
    ]);
    let found = longest_paths(&nodes, &edges).unwrap();
    assert_eq!(numbers(&found, "at_ns"), [12, 22, 32, 52]);
}

#[test]
fn a_launch_waits_for_a_full_queue() {
    let mut events = Events::default();
    for at in 0..1_100 {
        let start = if at < 1_000 { 10 * at } else { 10_000 + 50_000 * (at - 1_000) };
        // A launch takes 5 ns; in the full queue, it returns 1,000 ns after a kernel has ended.
        let length = if at < 1_000 { 5 } else { 49_900 };
        events.host.push((1, start, length, None));
        events.gpu.push((7, 8_900 + 50_000 * at, 50_000, at as u32, false));
    }
    for kernels in [1_100, 400] {
        // The recording may end before the others run.
        events.gpu.truncate(kernels);
        events.missing = kernels as u32..1_100;
        let found = path(&events.graph(), 0, 5_009_900);
        let queued = found.iter().filter(|segment| segment.3 == "queue").count();
        assert_eq!((queued, found.last().map(|segment| segment.2)), (1, Some(Some(1_099))));
        assert!(found.iter().filter(|segment| segment.3 == "execution").count() > 90);
    }
}

#[test]
fn a_thread_waits_for_the_thread_of_autograd() {
    let host = vec![
        (1, 0, 10, None),     // 0: forward
        (2, 15, 20, Some(1)), // 1: backward
        (2, 40, 30, Some(1)), // 2: backward
        (1, 80, 10, None),    // 3: optimizer
    ];
    let events = Events { host, ..Events::default() };
    assert_eq!(
        path(&events.graph(), 0, 90),
        [
            (0, 10, Some(0), "host"),
            (10, 5, Some(1), "thread"),
            (15, 20, Some(1), "host"),
            (35, 5, None, "host"),
            (40, 30, Some(2), "host"),
            (70, 10, Some(3), "thread"),
            (80, 10, Some(3), "host"),
        ]
    );
}

#[test]
fn a_call_waits_for_what_it_handed_to_another_thread() {
    let us = 1_000;
    let host = vec![
        (1, 0, 10 * us, None),        // 0: the call
        (2, 30 * us, 100 * us, None), // 1: its work
        (1, 150 * us, 20 * us, None), // 2: what comes after it
    ];
    let mut events = Events { host, handed: vec![(1, 0)], ..Events::default() };
    let expected = [
        (0, 30 * us, Some(1), "thread"),
        (30 * us, 100 * us, Some(1), "host"),
        (130 * us, 20 * us, Some(2), "thread"),
        (150 * us, 20 * us, Some(2), "host"),
    ];
    assert_eq!(path(&events.graph(), 0, 170 * us), expected);
    // If it takes no time, the next event starts as long after it as it did.
    let found = changed(&events.graph(), &[(1.0, 1.0), (0.0, 1.0), (1.0, 1.0)]);
    assert_eq!(found[2], (50 * us, 70 * us));
    // An operator that ran all the time was not waiting.
    events.host.push((1, 20 * us, 120 * us + 1, None));
    let found = changed(&events.graph(), &[(1.0, 1.0), (0.0, 1.0), (1.0, 1.0), (1.0, 1.0)]);
    assert_eq!(found[2], (150 * us, 170 * us));
}

#[test]
fn clocks_that_disagree_are_cut() {
    // The host waits for a kernel that it launches only after the wait.
    let mut events = step();
    events.host = vec![(1, 0, 100, None), (2, 0, 10, None)];
    events.gpu = vec![(7, 20, 30, 0, false), (7, 55, 10, 1, false)];
    events.waits = vec![[1, 7, 0, NONE]];
    assert_eq!(replayed(&events), events.times());
    let empty = Events::default();
    assert_eq!(path(&empty.graph(), 0, 10), [(0, 10, None, "unknown")]);
    assert_eq!(path(&empty.graph(), 10, 10), []);
}

fn any_events() -> impl Strategy<Value = Events> {
    let host = vec((0..3_i64, 0..60_i64, 0..20_i64, prop::option::weighted(0.3, 0..3_i64)), 0..12);
    host.prop_flat_map(|host| {
        let calls = host.len() as u32;
        let call = move || prop_oneof![1 => Just(NONE), 4 => 0..calls.max(1)];
        let call = move || call().prop_map(move |at| if at < calls { at } else { NONE });
        let stream = || prop_oneof![1 => Just(NONE), 3 => 0..4_u32];
        let gpu = vec((0..3_u32, 0..80_i64, 0..30_i64, call(), any::<bool>()), 0..12);
        let waits = vec((call(), stream(), call(), stream()), 0..6);
        let events = vec((call(), any::<bool>()), 0..6);
        let handed = vec((call(), call()), 0..4);
        (Just(host), gpu, waits, events, handed).prop_map(|(host, gpu, waits, events, handed)| {
            let waits = waits.into_iter().map(|(call, on, until, stream)| [call, on, until, stream]);
            Events { host, gpu, waits: waits.collect(), events, handed, ..Events::default() }
        })
    })
}

#[test]
fn a_shorter_kernel_ends_the_step_sooner() {
    let graph = step().graph();
    let mut factors = vec![(1.0, 1.0); 6];
    // Half of the second kernel.
    factors[5].0 = 0.5;
    assert_eq!(changed(&graph, &factors)[3], (50, 139));
    // The first kernel takes no time: the second one starts after the gap between them.
    factors[4].0 = 0.0;
    assert_eq!(changed(&graph, &factors)[5], (45, 97));
    // The host does not wait: only the time after the wait is left.
    factors[3] = (1.0, 0.0);
    assert_eq!(changed(&graph, &factors)[3], (50, 60));
    // Without kernels and waits, it takes what the host does.
    assert_eq!(changed(&graph, &factors)[0], (0, 70));
}

#[test]
fn a_thread_skips_parts_of_the_recording() {
    let (graph, factors) = (step().graph(), [(1.0, 1.0); 6]);
    let skipping = |parts: &[(i64, i64)]| without(&graph, &factors, parts);
    // All of it is earlier, also the kernel that is launched after the part.
    assert_eq!([skipping(&[(0, 8)])[1], skipping(&[(0, 8)])[4]], [(2, 12), (17, 67)]);
    // Parts that overlap count once; one of another launch is hidden by the first kernel.
    assert_eq!(skipping(&[(0, 8), (4, 6)]), skipping(&[(0, 8)]));
    assert_eq!(skipping(&[(22, 28)])[5], step().times()[5]);
    // The wait for the GPU is no time of the thread, but what comes after it is.
    assert_eq!(skipping(&[(60, 180)])[0], (0, 200));
    assert_eq!(skipping(&[(185, 999)])[0], (0, 190));
}

/// Two kernels of a phase with a collective between them, on its own stream if that is 8, and one of the next phase.
fn collective(stream: u32) -> Events {
    Events {
        host: (0..6).map(|at| (1, at, 1, None)).collect(),
        gpu: vec![
            (7, 10, 90, 0, false),
            (stream, 101, 200, 2, false),
            (7, 302, 100, 4, false),
            (7, 403, 10, 5, false),
        ],
        // The collective waits for the first kernel, and the second kernel for the collective.
        waits: if stream == 7 { Vec::new() } else { vec![[1, 7, NONE, 8], [3, 8, NONE, 7]] },
        ..Events::default()
    }
}

#[test]
fn a_collective_that_is_freed_runs_beside_the_rest_of_its_phase() {
    let phases = [0, 0, 0, 0, 0, 0, 1, 9, 1, 2];
    let freed: Vec<bool> = (0..10).map(|at| at == 7).collect();
    // Between kernels that were never next to each other, no gap is known.
    for (stream, start) in [(7, 101), (8, 100)] {
        let graph = collective(stream).graph();
        let found = freeing(&graph, &freed, &phases)[6..].to_vec();
        // The second kernel starts after the first one; that of the next phase waits for both.
        assert_eq!(found, [(10, 100), (101, 301), (start, start + 100), (301, 311)], "stream {stream}");
        // What begins a phase still waits.
        let begins = freeing(&graph, &freed, &[0, 0, 0, 0, 0, 0, 1, 9, 2, 2]);
        assert_eq!(begins, collective(stream).times());
    }
}

#[test]
fn a_change_reaches_what_lies_inside_and_was_launched_there() {
    let marked = |at: usize| frame([("marked", column((0..6).map(|event| event == at)))]);
    let within = |at: usize| {
        let batch = step().graph().enclosing(&marked(at), false).unwrap();
        let found = batch.column_by_name("event").unwrap().as_primitive::<UInt32Type>().clone();
        (0..6).filter(|&event| found.is_valid(event)).collect::<Vec<_>>()
    };
    assert_eq!(within(0), [0, 1, 2, 3, 4, 5]);
    assert_eq!(within(1), [1, 4]);
    assert_eq!(within(5), [5]);
}

#[test]
fn slack_is_how_much_later_an_event_may_end() {
    let replay = Replay::new(step().graph(), None, None, false).unwrap();
    // The launch of the second kernel could end 35 ns later: by then the first kernel has ended.
    let slack = numbers(&replay.slack(i64::MAX).unwrap(), "slack_ns");
    assert_eq!([slack[0], slack[3], slack[4], slack[5]], [0, 0, 0, 0]);
    assert!(slack[2] > 0 && slack[1] >= 0);
}

/// Factors of events, and others that are nowhere larger.
fn factors() -> impl Strategy<Value = Vec<[(f64, f64); 2]>> {
    let less = |by: f64| move |part: f64| by * part;
    vec((0.0..2.0_f64, 0.0..1.0_f64, 0.0..=1.0_f64), 24).prop_map(move |all| {
        let pair =
            |(own, waiting, part): (f64, f64, f64)| [(own, waiting), (less(own)(part), less(waiting)(part))];
        all.into_iter().map(pair).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_unchanged_graph_gives_the_recorded_times(events in any_events()) {
        prop_assert_eq!(replayed(&events), events.times());
    }

    #[test]
    fn a_path_fills_its_window(events in any_events(), start in -5..70_i64, length in 0..60_i64) {
        let mut reached = start;
        for (start, dur, ..) in path(&events.graph(), start, start + length) {
            prop_assert_eq!(start, reached);
            prop_assert!(dur > 0);
            reached += dur;
        }
        prop_assert_eq!(reached, start + length);
    }

    #[test]
    fn less_work_makes_nothing_later(
        events in any_events(),
        factors in factors(),
        parts in vec((-5..70_i64, -5..70_i64), 0..4),
    ) {
        let (graph, count) = (events.graph(), events.times().len());
        let [more, less] = [0, 1].map(|at| {
            let of: Vec<_> = factors.iter().map(|pair| pair[at]).take(count).collect();
            changed(&graph, &of)
        });
        for (less, more) in less.iter().zip(&more) {
            prop_assert!(less.0 <= more.0 && less.1 <= more.1);
        }
        let freed: Vec<bool> = factors.iter().map(|pair| pair[0].0 < 1.0).take(count).collect();
        let phases: Vec<u32> = factors.iter().map(|pair| u32::from(pair[0].1 < 0.3)).take(count).collect();
        for (less, more) in freeing(&graph, &freed, &phases).iter().zip(&events.times()) {
            prop_assert!(less.0 <= more.0 && less.1 <= more.1);
        }
        prop_assert_eq!(freeing(&graph, &vec![false; count], &phases), events.times());
        let unchanged = vec![(1.0, 1.0); count];
        prop_assert_eq!(changed(&graph, &unchanged), events.times());
        let skipping = without(&graph, &unchanged, &parts);
        for (less, more) in skipping.iter().zip(&events.times()) {
            prop_assert!(less.0 <= more.0 && less.1 <= more.1);
        }
    }

    #[test]
    fn the_terms_of_meetings_give_every_arrival(
        events in any_events(),
        meets in vec(any::<bool>(), 24),
        changes in vec(0.0..3.0_f64, 24),
    ) {
        let (graph, calls, count) = (events.graph(), events.host.len(), events.times().len());
        let meetings: Vec<u32> = (0..count).filter(|&at| at >= calls && meets[at]).map(|at| at as u32).collect();
        // Others let the rank go on at another time: its meetings take longer or shorter.
        let mut factors = vec![(1.0, 1.0); count];
        meetings.iter().for_each(|&event| factors[event as usize].0 = changes[event as usize]);
        let times = changed(&graph, &factors);
        // Two groups of marks: the ends of all events, and a moment of the recording.
        let marks = (0..count as u32).map(|event| (0_u32, event, 0)).chain([(1, NONE, 20)]);
        let marks: Vec<_> = marks.collect();
        let marks = frame([
            ("group", column(marks.iter().map(|mark| mark.0))),
            ("event", positions(marks.iter().map(|mark| mark.1).collect())),
            ("is_end", column(marks.iter().map(|_| true))),
            ("at_ns", column(marks.iter().map(|mark| mark.2))),
        ]);
        let asked = frame([("event", positions(meetings.clone()))]);
        let replay = Replay::new(Arc::clone(&graph), None, None, false).unwrap();
        let terms = replay.terms(&asked, &marks, 2).unwrap();
        let of = |name: &str| terms.column_by_name(name).unwrap().as_primitive::<UInt32Type>().clone();
        let (targets, sources) = (of("target"), of("source"));
        let lengths = numbers(&terms, "length_ns");
        let others = meetings.len() + 2;
        let joins = (others as u32..).take_while(|join| targets.values().contains(join)).count();
        let mut reached = vec![None; others + joins];
        // Joins come last in the table, but before what they decide, and after the joins before them.
        let is_join = |at: &usize| targets.value(*at) as usize >= others;
        let order = (0..lengths.len()).filter(is_join).chain((0..lengths.len()).filter(|at| !is_join(at)));
        for at in order {
            let source = match sources.is_valid(at).then(|| sources.value(at) as usize) {
                None => 0,
                Some(join) if join >= others => reached[join].unwrap(),
                Some(meeting) => times[meetings[meeting] as usize].1,
            };
            let reached = &mut reached[targets.value(at) as usize];
            *reached = (*reached).max(Some(source + lengths[at]));
        }
        let mut expected: Vec<_> = meetings.iter().map(|&event| Some(times[event as usize].0)).collect();
        expected.push(times.iter().map(|time| time.1).max());
        prop_assert_eq!(&reached[..expected.len()], &expected[..]);
        let mut factors = vec![1.0; count];
        meetings.iter().for_each(|&event| factors[event as usize] = changes[event as usize]);
        let changes = frame([("own", column(factors)), ("waiting", column(vec![1.0; count]))]);
        let replay = Replay::new(graph, Some(&changes), None, false).unwrap();
        let latest = replay.latest_marks(&marks, 2).unwrap();
        let latest = latest.column_by_name("at_ns").unwrap().as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        prop_assert_eq!(&reached[meetings.len()..others], &latest[..]);
    }

    #[test]
    fn an_event_without_slack_is_on_the_way(events in any_events()) {
        let replay = Replay::new(events.graph(), None, None, false).unwrap();
        prop_assert!(numbers(&replay.slack(i64::MAX).unwrap(), "slack_ns").iter().all(|&slack| slack >= 0));
    }
}
