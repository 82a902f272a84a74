//! Exporters that write no categories: only the process of an event tells what it is.

use proptest::prelude::*;
use traceparse::Code;

use crate::reading::{Reading, reading};

/// What `export_chrome_trace` of PyTorch 1.4 to 1.8 writes of an operator: the call, and for each range of it on a
/// GPU an arrow and the range.
fn legacy_op(id: u32, name: &str, start: u32, dur: u32, on_gpu: Option<(u32, u32, u32)>) -> String {
    let host = format!(
        r#"{{"name": "{name}", "ph": "X", "ts": {start}.25, "dur": {dur}, "tid": 1, "pid": "CPU functions", "args": {{}}}}"#
    );
    let Some((gpu, start_on_gpu, dur_on_gpu)) = on_gpu else { return host };
    format!(
        r#"{host}, {{"name": "{name}", "ph": "s", "ts": {start}.25, "tid": 1, "pid": "CPU functions", "id": {id},
            "cat": "cpu_to_cuda", "args": {{}}}},
        {{"name": "    {name}", "ph": "f", "ts": {start_on_gpu}.5, tid": {gpu}, "pid": "CUDA functions", "id": {id},
            "cat": "cpu_to_cuda", "args": {{}}}},
        {{"name": "{name}", "ph": "X", "ts": {start_on_gpu}.5, "dur": {dur_on_gpu}, "tid": {gpu},
            "pid": "CUDA functions", "args": {{}}}}"#
    )
}

fn works(reading: &Reading) -> Vec<String> {
    let ops = reading.rows("ops", "row name");
    let name = |row: &str| ops.iter().find_map(|op| op.strip_prefix(&format!("{row} | "))).unwrap_or("-");
    let rows = reading.rows("gpu_ops", "name device stream start_ns dur_ns link op_row").into_iter();
    rows.map(|row| {
        let (rest, op) = row.rsplit_once(" | ").unwrap();
        format!("{rest} | {}", name(op))
    })
    .collect()
}

#[test]
fn work_before_kineto() {
    let events = [
        legacy_op(0, "linear", 50, 100, Some((0, 60, 80))),
        legacy_op(1, "addmm", 55, 40, Some((0, 65, 30))),
        legacy_op(2, "mul", 160, 5, None),
        legacy_op(3, "relu", 170, 10, Some((1, 65, 20))),
    ];
    let found = reading(format!("[{}]", events.join(", ")));
    assert_eq!(found.rows("ops", "name start_ns dur_ns").len(), 4);
    assert_eq!(
        works(&found),
        ["addmm | 0 | - | 65500 | 30000 | arrow | addmm", "relu | 1 | - | 65500 | 20000 | arrow | relu"]
    );
    // The range of an operator around others is no work beside theirs.
    assert_eq!(found.rows("gpu_annotations", "name device start_ns dur_ns"), ["linear | 0 | 60500 | 80000"]);
    assert_eq!(found.count(Code::RepairedEvent), 3);
    assert_eq!(found.events(), (13, 13, 0));
}

/// A trace of an NPU, its events in the order of `keys`, and of each device these matrix products: an operator, and
/// a task that starts so much later on a stream.
fn npu(products: &[(i64, i64, u32)], keys: &[u32]) -> String {
    let pid = |sort: i64, device: i64| (7 << 10) | (sort << 5) | device;
    let named = |kind: &str, pid: i64, tid: i64, name: &str| {
        format!(
            r#"{{"ph": "M", "name": "{kind}", "pid": {pid}, "tid": {tid}, "args": {{"name": "{name}"}}}}"#
        )
    };
    let mut events = vec![named("process_name", 100, 0, "Python"), named("process_name", 101, 0, "CANN")];
    for device in 0..2 {
        for (sort, name) in [(1, "Ascend Hardware"), (2, "Communication"), (3, "Overlap Analysis")] {
            events.push(named("process_name", pid(sort, device), 0, name));
        }
        events.push(named("thread_name", pid(2, device), 0, "Group 0 Communication"));
        events.push(named("thread_name", pid(2, device), 1, "Plane 0"));
    }
    let slice = |name: &str, pid: i64, tid: i64, ts: i64, rest: &str| {
        format!(
            r#"{{"ph": "X", "name": "{name}", "pid": {pid}, "tid": {tid}, "ts": "{ts}.250", "dur": 5, {rest}}}"#
        )
    };
    for (number, &(device, stream, delay)) in products.iter().enumerate() {
        let start = 1_747_101_234_567_000 + 100 * number as i64;
        let on_npu = start + i64::from(delay);
        events.push(slice(&format!("aten::mm{number}"), 100, 1, start, r#""cat": "cpu_op""#));
        events.push(slice("Node@launch", 101, 1, start + 1, r#""args": {}"#));
        let arrow = |phase: &str, pid: i64, tid: i64, ts: i64| {
            format!(
                r#"{{"ph": "{phase}", "bp": "e", "name": "async_npu", "cat": "async_npu", "pid": {pid}, "tid": {tid},
                    "id": "{start}000", "ts": "{ts}.250"}}"#
            )
        };
        events.push(arrow("s", 100, 1, start + 2));
        events.push(arrow("f", pid(1, device), stream, on_npu));
        let task = |task: &str| format!(r#""args": {{"Task Type": "{task}", "Stream Id": {stream}}}"#);
        events.push(slice(&format!("MatMul{number}"), pid(1, device), stream, on_npu, &task("AI_CORE")));
        events.push(slice("EVENT_WAIT", pid(1, device), stream, on_npu + 6, &task("EVENT_WAIT")));
        events.push(slice("Notify_Wait", pid(1, device), stream + 50, on_npu + 6, &task("NOTIFY_WAIT")));
        events.push(slice("hcom_allReduce__1_0", pid(2, device), 0, on_npu + 20, r#""args": {}"#));
        events.push(slice("Reduce_Inline", pid(2, device), 1, on_npu + 20, r#""args": {}"#));
        events.push(slice("Computing", pid(3, device), 0, on_npu, r#""args": {}"#));
    }
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|&index| keys.get(index).copied().unwrap_or(0));
    format!("[{}]", order.iter().map(|&index| &*events[index]).collect::<Vec<_>>().join(", "))
}

/// The operator and the task of one product, with the arrow between them, of a device and a stream.
fn product(name: &str, device: i64, stream: i64, [host, on_npu]: [&str; 2]) -> String {
    let pid = (7 << 10) | (1 << 5) | device;
    format!(
        r#"{{"ph": "M", "name": "process_name", "pid": {pid}, "tid": 0, "args": {{"name": "Ascend Hardware"}}}},
        {{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 100, "tid": 1, "ts": {host}, "dur": 5}},
        {{"ph": "s", "name": "async_npu", "cat": "async_npu", "pid": 100, "tid": 1, "id": {host}, "ts": {host}}},
        {{"ph": "f", "name": "async_npu", "cat": "async_npu", "pid": {pid}, "tid": {stream}, "id": {host},
            "ts": {on_npu}}},
        {{"ph": "X", "name": "{name}", "pid": {pid}, "tid": {stream}, "ts": {on_npu}, "dur": 5,
            "args": {{"Task Type": "AI_CORE"}}}}"#
    )
}

#[test]
fn arrows_lead_to_a_device_and_a_stream() {
    let products = [("a", 0, 3, ["100", "200"]), ("b", 1, 3, ["110", "200"]), ("c", 1, 4, ["120", "200"])];
    let events = products.map(|(name, device, stream, starts)| product(name, device, stream, starts));
    let found = reading(format!("[{}]", events.join(", ")));
    assert_eq!(
        works(&found),
        [
            "a | 0 | 3 | 200000 | 5000 | arrow | a",
            "b | 1 | 3 | 200000 | 5000 | arrow | b",
            "c | 1 | 4 | 200000 | 5000 | arrow | c"
        ]
    );
}

#[test]
fn an_arrow_that_may_lead_to_two_works_leads_to_none() {
    let events = [product("a", 0, 3, ["100", "200"]), product("b", 0, 3, ["110", "200"])];
    let found = reading(format!("[{}]", events.join(", ")));
    assert_eq!(
        found.rows("gpu_ops", "name link op_row"),
        ["a | no_correlation | -", "b | no_correlation | -"]
    );
}

#[test]
fn work_without_a_time_keeps_its_operator() {
    let events = [product("a", 0, 3, ["100", "0"]), product("b", 0, 3, ["110", "200"])];
    let found =
        reading(format!("[{}]", events.join(", ")).replace(r#""ts": 0, "dur": 5"#, r#""ts": 0, "dur": 0"#));
    assert_eq!(found.rows("untimed_gpu_ops", "name op_row"), [format!("a | {}", row_of(&found, "a"))]);
    assert_eq!(works(&found), ["b | 0 | 3 | 200000 | 5000 | arrow | b"]);
}

/// The `row` of an op.
fn row_of(reading: &Reading, op: &str) -> String {
    let ops = reading.rows("ops", "row name").into_iter();
    ops.filter_map(|row| Some(row.strip_suffix(&format!(" | {op}"))?.to_owned())).next().unwrap()
}

proptest! {
    #[test]
    fn work_of_an_npu(
        products in prop::collection::vec((0_i64..2, 1_i64..4, 3_u32..60), 1..6),
        keys in prop::collection::vec(any::<u32>(), 80),
    ) {
        let found = reading(npu(&products, &keys));
        let mut expected = Vec::new();
        for (number, &(device, stream, delay)) in products.iter().enumerate() {
            let start = (1_747_101_234_567_000 + 100 * number as i64 + i64::from(delay)) * 1_000 + 250;
            let product =
                format!("MatMul{number} | {device} | {stream} | {start} | 5000 | arrow | aten::mm{number}");
            let collective = format!(
                "hcom_allReduce__1_0 | {device} | - | {} | 5000 | no_correlation | -", start + 20_000
            );
            expected.extend([product, collective]);
        }
        let mut works = works(&found);
        works.sort();
        expected.sort();
        prop_assert_eq!(works, expected);
        let rows = |table: &str| found.rows(table, "row").len();
        let count = products.len();
        prop_assert_eq!(["ops", "launches", "syncs", "spans"].map(rows), [count, count, count, 3 * count]);
        let is_communication = found.rows("gpu_ops", "name is_communication");
        prop_assert!(is_communication.iter().all(|row| row.starts_with("hcom") == row.ends_with("true")));
    }
}
