//! Every layout is valid JSON and holds the same events; options decide the bytes.

use std::io::Read;

use crate::reading::{parse, small, write};
use flate2::read::GzDecoder;
use tracedemo::{DemoOptions, Layout, write_trace};

#[test]
fn every_layout_holds_the_same_events() {
    let trace = |layout| {
        let (bytes, truth) = write(&DemoOptions { layout, ..small() });
        assert_eq!(truth.json_bytes, bytes.len() as u64, "{layout:?}");
        let (top, events) = parse(&bytes);
        let (metadata, others): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| event.phase == "M");
        (top, metadata, others, truth.steps, truth.kernels)
    };
    let native = trace(Layout::Native);
    for layout in [Layout::KeyPerLine, Layout::EventPerLine, Layout::Compact] {
        assert_eq!(native, trace(layout), "{layout:?}");
    }
}

#[test]
fn layouts_look_as_their_writers_make_them() {
    let text = |layout| String::from_utf8(write(&DemoOptions { layout, ..small() }).0).expect("plain ASCII");
    let holds = |layout, part: &str| assert!(text(layout).contains(part), "{layout:?} {part}");
    let header = "\n{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n    {\n      \"id\": 0, ";
    assert!(text(Layout::Native).starts_with(header));
    let add = "\n  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add\", \"pid\": ";
    holds(Layout::Native, add);
    holds(Layout::Native, "    \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  },\n");
    holds(Layout::KeyPerLine, &add.replace(", ", ",\n    ").replace("\"pid\": ", ""));
    holds(Layout::KeyPerLine, "\n    ,\n    \"args\": {\n      \"External id\": ");
    let per_event = text(Layout::EventPerLine);
    let lines = per_event.lines().filter(|line| line.starts_with("{\"ph\":\"")).count();
    assert_eq!(lines as u64, write(&small()).1.events);
    assert_eq!(text(Layout::Compact).lines().count(), 1);
    for layout in Layout::ALL {
        assert!(text(layout).is_ascii());
        assert_eq!(Layout::from_name(layout.name()), Some(layout));
    }
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let options = small();
    let (bytes, truth) = write(&options);
    assert_eq!((bytes.clone(), truth.clone()), write(&options));
    for other in [DemoOptions { seed: 8, ..small() }, DemoOptions { rank: 0, ..small() }] {
        assert_ne!(bytes, write(&other).0, "{other:?}");
    }
}

#[test]
fn gzip_holds_the_plain_bytes() {
    let (plain, truth) = write(&small());
    let (packed, packed_truth) = write(&DemoOptions { gzip: true, ..small() });
    let mut inflated = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut inflated).expect("one gzip member");
    assert!(inflated == plain && packed.len() * 5 < plain.len());
    assert_eq!(truth, packed_truth);
}

#[test]
fn the_size_is_reached_within_a_step() {
    for size_bytes in [1_000_000, 6_000_000, 21_000_000] {
        for layout in Layout::ALL {
            let (bytes, truth) = write(&DemoOptions { size_bytes, layout, ..DemoOptions::default() });
            let steps = truth.steps.len();
            assert!(steps >= 3, "{size_bytes} {layout:?}: {steps} steps");
            let over = bytes.len() as i64 - size_bytes as i64;
            let step_bytes = (bytes.len() / steps) as i64;
            let most = step_bytes * 5 / 4;
            assert!((0..most).contains(&over), "{size_bytes} {layout:?}: {over} of {most}");
        }
    }
}

#[test]
fn a_caller_can_stop_it() {
    let mut seen = 0;
    let stopped = write_trace(&DemoOptions::default(), &mut std::io::sink(), &mut |bytes| {
        seen = bytes;
        bytes < 5_000_000
    });
    assert_eq!(stopped.expect_err("it was stopped").kind(), std::io::ErrorKind::Interrupted);
    assert!((5_000_000..12_000_000).contains(&seen), "{seen}");
}

#[test]
fn impossible_options_are_refused() {
    for options in [
        DemoOptions { ranks: 0, ..small() },
        DemoOptions { ranks: 2, rank: 2, ..small() },
        DemoOptions { layers: Some(0), ..small() },
        DemoOptions { steps: Some(0), ..small() },
    ] {
        let error = write_trace(&options, &mut std::io::sink(), &mut |_| true).expect_err("refused");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{options:?}");
    }
}
