//! Ids, flows, frames and memory hang together as they do in a recorded trace.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::reading::{CALLS, Event, GPU, HOST_OPS, of, parse, small, write};
use tracedemo::DemoOptions;

fn events() -> Vec<Event> {
    parse(&write(&small()).0).1
}

#[test]
fn flows_bind_to_slices() {
    let events = events();
    let place = |event: &Event| (event.pid.clone(), event.tid.clone(), event.start);
    let mut slices: HashMap<_, Vec<&Event>> = HashMap::new();
    for event in events.iter().filter(|event| event.phase == "X") {
        slices.entry(place(event)).or_default().push(event);
    }
    // Ends of each flow; its start has the later letter.
    let mut flows: BTreeMap<(&str, i64), Vec<(&str, &Event)>> = BTreeMap::new();
    for flow in events.iter().filter(|event| event.phase == "s" || event.phase == "f") {
        let id = flow.id.expect("a flow has an id");
        let wanted = |slice: &&&Event| match flow.category.as_str() {
            "ac2g" => slice.int("correlation") == Some(id) && slice.category != "cuda_sync",
            _ => slice.category == "cpu_op" && slice.int("Sequence number").is_some(),
        };
        let found: Vec<_> = slices.get(&place(flow)).into_iter().flatten().filter(wanted).collect();
        assert_eq!(found.len(), 1, "{flow:?}");
        flows.entry((&flow.category, id)).or_default().push((&flow.phase, found[0]));
    }
    let (mut launches, mut pairs, mut lone, mut graphs) = (0, 0, 0, 0);
    for ((category, _), mut ends) in flows {
        ends.sort_by_key(|(phase, _)| std::cmp::Reverse(*phase));
        match (category, &ends[..]) {
            ("fwdbwd", [("s", forward), ("f", backward)]) => {
                assert_eq!(forward.int("Sequence number"), backward.int("Sequence number"));
                assert_eq!((forward.int("Fwd thread id"), backward.int("Fwd thread id")), (Some(0), Some(1)));
                assert!(backward.name.ends_with("Backward0") && forward.tid != backward.tid);
                pairs += 1;
            }
            ("ac2g", [("s", _), ("f", _)]) => launches += 1,
            ("ac2g", [("s", launch), ..]) => {
                assert_eq!(launch.name, "cudaGraphLaunch");
                graphs += 1;
            }
            ("ac2g", [("f", _)]) => lone += 1,
            other => panic!("{other:?}"),
        }
    }
    let truth = write(&small()).1;
    assert_eq!((launches, pairs), (truth.gpu_ops_with_op, truth.forward_backward_pairs));
    assert!(pairs > 100 && lone > 50 && graphs == 1, "{pairs} {lone} {graphs}");
}

#[test]
fn ids_are_unique_and_in_order() {
    let events = events();
    let indices = events.iter().filter_map(|event| event.int("Ev Idx"));
    assert!(indices.enumerate().all(|(place, index)| place as i64 == index));
    let (mut ids, mut correlations) = (HashSet::new(), HashSet::new());
    assert!(of(&events, HOST_OPS).all(|op| ids.insert(op.int("External id"))));
    assert!(of(&events, CALLS).all(|call| correlations.insert(call.int("correlation"))));
}

#[test]
fn slices_of_a_thread_nest() {
    let events = events();
    let nests = |categories: &[&str]| {
        let mut slices: Vec<_> = of(&events, categories).collect();
        slices.sort_by_key(|event| (&event.pid, &event.tid, event.start, -event.dur));
        let mut open: Vec<&Event> = Vec::new();
        slices.into_iter().all(|event| {
            while open.last().is_some_and(|last| last.tid != event.tid || last.end() <= event.start) {
                open.pop();
            }
            let nested = open.last().is_none_or(|last| event.is_within(last));
            open.push(event);
            nested
        })
    };
    assert!(nests(&[HOST_OPS, CALLS].concat()));
    assert!(nests(&["python_function"]));
    let overlapping = ["python_function", "user_annotation"];
    assert!(!nests(&overlapping), "steps and frames overlap in part, as recorded ones do");
    for stream in ["7", "20", "28"] {
        let mut work: Vec<_> = of(&events, GPU).filter(|work| work.tid == stream).collect();
        work.sort_by_key(|event| event.start);
        assert!(work.windows(2).all(|pair| pair[0].end() <= pair[1].start));
        assert!(work.len() > 5);
    }
}

#[test]
fn frames_name_their_callers() {
    let events = events();
    let frames = of(&events, &["python_function"]);
    let by_id: HashMap<_, _> = frames.clone().map(|frame| (frame.int("Python id"), frame)).collect();
    assert_eq!(by_id.len(), frames.clone().count());
    let mut roots = 0;
    for frame in frames {
        match frame.int("Python parent id") {
            Some(parent) => assert!(frame.is_within(by_id[&Some(parent)]), "{frame:?}"),
            None => roots += 1,
        }
        assert_eq!(frame.int("Python module id").is_some(), frame.name.starts_with("nn.Module: "));
    }
    assert_eq!(roots, 2);
}

#[test]
fn memory_adds_up() {
    let events = events();
    let mut totals = HashMap::new();
    let mut blocks: HashMap<_, i64> = HashMap::new();
    let mut memory: Vec<_> = events.iter().filter(|event| event.name == "[memory]").collect();
    memory.sort_by_key(|event| event.start);
    for event in &memory {
        let device = event.int("Device Id");
        let bytes = event.int("Bytes").expect("bytes");
        let total = event.int("Total Allocated").expect("a total");
        if let Some(before) = totals.insert(device, total) {
            assert_eq!(before + bytes, total);
        }
        assert!(total >= 0 && (device == Some(-1) || Some(total) <= event.int("Total Reserved")));
        let held = blocks.entry((device, event.int("Addr"))).or_insert((-bytes).max(0));
        *held += bytes;
        assert!(*held == 0 || *held == bytes, "an address is allocated and freed in turn");
    }
    assert!(memory.len() > 200 && totals.len() == 2);
}

#[test]
fn annotations_on_the_gpu_span_their_work() {
    let events = events();
    let annotations = of(&events, &["user_annotation"]).map(|op| (op.int("External id"), &op.name));
    let annotations: HashMap<_, _> = annotations.collect();
    let edges = of(&events, GPU).flat_map(|work| [(&work.tid, work.start), (&work.tid, work.end())]);
    let edges: HashSet<_> = edges.collect();
    let spans = of(&events, &["gpu_user_annotation"]);
    assert!(spans.clone().count() > 10);
    for span in spans {
        assert_eq!(*annotations[&span.int("External id")], span.name);
        assert!([span.start + 1, span.end() - 1].iter().all(|&at| edges.contains(&(&span.tid, at))));
    }
}

#[test]
fn ranks_agree_on_when_collectives_end() {
    let collectives = |rank| -> (Vec<(Option<i64>, i64)>, Vec<i64>) {
        let events = parse(&write(&DemoOptions { rank, ranks: 4, ..small() }).0).1;
        let kernels = events.iter().filter(|event| event.name.starts_with("ncclDevKernel"));
        kernels.map(|kernel| ((kernel.int("Seq"), kernel.end()), kernel.dur)).unzip()
    };
    let (ends, durations) = collectives(0);
    assert_eq!(ends.len(), 5 * 3);
    for rank in 1..4 {
        let other = collectives(rank);
        assert_eq!(ends, other.0);
        assert_ne!(durations, other.1, "but not on how long they wait in them");
    }
}

#[test]
fn the_header_describes_the_job() {
    let (top, _) = parse(&write(&small()).0);
    assert_eq!(top["distributedInfo"]["rank"], 1);
    assert_eq!(top["distributedInfo"]["world_size"], 2);
    assert_eq!(top["distributedInfo"]["pg_config"][0]["ranks"], serde_json::json!([0, 1]));
    assert_eq!(top["deviceProperties"][7]["numSms"], 132);
    assert_eq!(top["baseTimeNanoseconds"].as_i64().map(|base| base % (7_889_238 * 1_000_000_000)), Some(0));
    let (top, _) = parse(&write(&DemoOptions { ranks: 1, rank: 0, ..small() }).0);
    assert!(top.get("distributedInfo").is_none());
}
