//! Files into which several ranks were merged: each rank is as if it had been recorded alone.

use proptest::prelude::*;
use serde_json::{Value, json};
use traceparse::{Code, ReadOptions, read, read_ranks};

use crate::reading::{Reading, TraceFile};

/// An operator, its launch and its kernel, so late and so long, on a GPU and a stream.
type Work = (i64, i64, i32, i64);

/// How ranks are told apart.
#[derive(Debug, Clone, Copy)]
enum Merge {
    Label,
    Prefix,
    Raised,
    Member,
}

/// What a rank records: ids, streams, steps and arrows repeat from rank to rank.
fn events(pid: i64, works: &[Work]) -> Vec<Value> {
    let mut events = vec![
        json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}}),
        json!({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": pid, "tid": 1, "ts": 1,
            "dur": 10_000, "args": {"External id": 99}}),
    ];
    for (number, &(delay, dur, device, stream)) in works.iter().enumerate() {
        let (id, at) = (number + 1, 10 + 100 * number as i64);
        let gpu = at + 20 + delay;
        events.push(
            json!({"ph": "X", "cat": "cpu_op", "name": format!("aten::mm{number}"), "pid": pid, "tid": 1,
            "ts": at, "dur": 30, "args": {"External id": id}}),
        );
        events
            .push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": 1,
            "ts": at + 5, "dur": 5, "args": {"External id": id, "correlation": id}}));
        events.push(
            json!({"ph": "X", "cat": "kernel", "name": format!("gemm{number}"), "pid": device, "tid": stream,
            "ts": gpu, "dur": dur,
            "args": {"External id": id, "correlation": id, "device": device, "stream": stream}}),
        );
        events.push(
            json!({"ph": "s", "id": id, "pid": pid, "tid": 1, "ts": at + 5, "cat": "ac2g", "name": "ac2g"}),
        );
        events.push(json!({"ph": "f", "id": id, "pid": device, "tid": stream, "ts": gpu, "cat": "ac2g",
            "name": "ac2g", "bp": "e"}));
        events.push(json!({"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "pid": device,
            "tid": stream, "ts": gpu, "dur": dur}));
    }
    events
}

/// The event of a rank in a merged file.
fn merged(mut event: Value, rank: i64, merge: Merge) -> Value {
    let pid = event["pid"].as_i64().unwrap();
    match merge {
        Merge::Label => event["pid"] = json!(format!("[TP{rank:02}-DP00] {pid}")),
        Merge::Prefix => event["pid"] = json!(format!("rank{rank}: {pid}")),
        Merge::Raised => event["pid"] = json!(pid + 100_000 * rank),
        Merge::Member => event["args"]["rank"] = json!(rank),
    }
    event
}

fn document(events: &[Value]) -> TraceFile {
    let devices: Vec<_> = (0..2).map(|id| json!({"id": id, "name": "NVIDIA A100-SXM4-80GB"})).collect();
    TraceFile::new(
        json!({"schemaVersion": 1, "deviceProperties": devices, "traceEvents": events}).to_string(),
    )
}

const COLUMNS: [(&str, &str); 7] = [
    ("ops", "name pid tid start_ns dur_ns step"),
    ("launches", "name pid tid start_ns correlation step"),
    ("gpu_ops", "name device stream start_ns dur_ns correlation link step"),
    ("gpu_annotations", "name device stream start_ns dur_ns"),
    ("flows", "id kind pid tid start_ns"),
    ("steps", "step start_ns total_ns kernel_ns"),
    ("devices", "device name"),
];

/// What is known of a trace but for the numbers of its rows, and what each kernel belongs to.
fn told(reading: &Reading) -> (Vec<Vec<String>>, Vec<[String; 3]>) {
    let name = |table: &str, row: &str| {
        let found = reading.rows(table, "row name").into_iter();
        let mut names = found.filter_map(|text| Some(text.strip_prefix(&format!("{row} | "))?.to_owned()));
        names.next().unwrap_or_default()
    };
    let works = reading.rows("gpu_ops", "name launch_row op_row").into_iter();
    let mut links: Vec<[String; 3]> = works
        .map(|text| {
            let parts: Vec<&str> = text.split(" | ").collect();
            [parts[0].to_owned(), name("launches", parts[1]), name("ops", parts[2])]
        })
        .collect();
    let mut all: Vec<Vec<String>> =
        COLUMNS.iter().map(|(table, columns)| reading.rows(table, columns)).collect();
    all.iter_mut().for_each(|rows| rows.sort());
    links.sort();
    (all, links)
}

fn works() -> impl Strategy<Value = Vec<Work>> {
    prop::collection::vec((0_i64..500, 1_i64..40, 0_i32..2, 7_i64..9), 1..5)
}

fn merges() -> impl Strategy<Value = Merge> {
    prop_oneof![Just(Merge::Label), Just(Merge::Prefix), Just(Merge::Raised), Just(Merge::Member)]
}

proptest! {
    #[test]
    fn a_rank_of_a_merged_file_is_as_if_alone(
        ranks in prop::collection::vec(works(), 2..5),
        merge in merges(),
        keys in prop::collection::vec(any::<u32>(), 150),
        same_pid in any::<bool>(),
    ) {
        // An argument tells ranks apart where their processes have numbers of their own.
        let pid = |rank: usize| if same_pid && !matches!(merge, Merge::Member) { 83 } else { 83 + rank as i64 };
        let alone: Vec<Vec<Value>> =
            ranks.iter().enumerate().map(|(rank, works)| events(pid(rank), works)).collect();
        let mut together: Vec<Value> = alone.iter().zip(0..)
            .flat_map(|(events, rank)| events.iter().map(move |event| merged(event.clone(), rank, merge)))
            .collect();
        let mut order: Vec<usize> = (0..together.len()).collect();
        order.sort_by_key(|&index| keys.get(index).copied().unwrap_or(0));
        together = order.into_iter().map(|index| together[index].clone()).collect();
        let file = document(&together);
        let traces = read_ranks(file.path(), &ReadOptions::default()).unwrap();
        prop_assert_eq!(traces.len(), ranks.len());
        let mut seen = 0;
        for ((trace, events), rank) in traces.into_iter().zip(&alone).zip(0..) {
            prop_assert_eq!(trace.meta.rank, Some(rank));
            prop_assert_eq!(trace.meta.ranks.len(), ranks.len());
            prop_assert!(trace.stats.get(Code::UnrankedEvent).is_none());
            prop_assert_eq!(trace.stats.kept, events.len() as u64);
            seen += trace.stats.seen;
            let only = read(file.path(), &ReadOptions { rank: Some(rank), ..ReadOptions::default() }).unwrap();
            let expected = read(document(events).path(), &ReadOptions::default()).unwrap();
            let [trace, only, expected] = [trace, only, expected].map(|trace| told(&trace.into()));
            prop_assert_eq!(trace, expected.clone());
            prop_assert_eq!(only, expected.clone());
        }
        prop_assert_eq!(seen, together.len() as u64);
    }
}

#[test]
fn ranks_are_numbered_as_their_labels_say() {
    let numbers = |labels: &[&str]| {
        let works = [(0, 5, 0, 7)];
        let of_label = |label: &&str| {
            let label = format!("[{label}]");
            let events = events(83, &works).into_iter();
            events
                .map(|mut event| {
                    event["pid"] = json!(format!("{label} {}", event["pid"]));
                    event
                })
                .collect::<Vec<_>>()
        };
        let file = document(&labels.iter().flat_map(of_label).collect::<Vec<_>>());
        let traces = read_ranks(file.path(), &ReadOptions::default()).unwrap();
        let names = traces[0].meta.ranks.iter();
        names.map(|name| (name.number, name.label.clone().unwrap())).collect::<Vec<_>>()
    };
    let told = |expected: &[(i32, &str)]| -> Vec<(i32, String)> {
        expected.iter().map(|&(number, label)| (number, label.to_owned())).collect()
    };
    // By the part that tells all apart, also where a rank is missing; by rank; else in order.
    assert_eq!(numbers(&["TP03-EP00", "TP01-EP00"]), told(&[(1, "TP01-EP00"), (3, "TP03-EP00")]));
    assert_eq!(numbers(&["DECODE-DP02", "DECODE-DP07"]), told(&[(2, "DECODE-DP02"), (7, "DECODE-DP07")]));
    assert_eq!(numbers(&["rank 12", "rank 4"]), told(&[(4, "rank 4"), (12, "rank 12")]));
    assert_eq!(
        numbers(&["TP01-PP01", "TP00-PP01", "TP01-PP00", "TP00-PP00"]),
        told(&[(0, "TP00-PP00"), (1, "TP01-PP00"), (2, "TP00-PP01"), (3, "TP01-PP01")])
    );
    assert_eq!(numbers(&["Unknown", "TP00"]), told(&[(0, "Unknown"), (1, "TP00")]));
}

#[test]
fn events_of_no_rank_are_with_the_first() {
    let works = [(0, 5, 0, 7)];
    let mut all: Vec<Value> = (0..2)
        .flat_map(|rank| events(83, &works).into_iter().map(move |it| merged(it, rank, Merge::Label)))
        .collect();
    all.push(json!({"ph": "i", "name": "shared", "pid": "Notes", "tid": 1, "ts": 5}));
    let file = document(&all);
    let traces = read_ranks(file.path(), &ReadOptions::default()).unwrap();
    let counts: Vec<_> = traces.iter().map(|trace| (trace.stats.seen, trace.stats.kept)).collect();
    assert_eq!(counts, [(9, 9), (8, 8)]);
    assert_eq!(traces[0].stats.get(Code::UnrankedEvent).map(|found| found.count), Some(1));
}

#[test]
fn ranks_that_are_not_there_are_refused() {
    let works = [(0, 5, 0, 7)];
    let all: Vec<Value> = (0..2)
        .flat_map(|rank| events(83, &works).into_iter().map(move |it| merged(it, rank, Merge::Label)))
        .collect();
    let of_rank = |file: &TraceFile, rank| {
        read(file.path(), &ReadOptions { rank, ..ReadOptions::default() }).unwrap_err().to_string()
    };
    assert!(of_rank(&document(&all), Some(2)).contains("no event belongs to rank 2; there are 0, 1"));
    assert!(of_rank(&document(&all), None).contains("contains several ranks (0, 1): choose one"));
    assert!(
        of_rank(&document(&events(83, &works)), Some(2)).contains("the file does not contain several ranks")
    );
}
