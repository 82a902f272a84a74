//! One file per rank, complete or not at all.

use std::fs;
use std::path::PathBuf;

use crate::reading::{small, write};
use tracedemo::{DemoOptions, write_files};

/// A folder of its own, removed when the test passes.
fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("tracedemo-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

fn names(dir: &PathBuf) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the folder is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_rank_gets_its_file_and_truth() {
    let dir = folder("ranks");
    let options = DemoOptions { size_bytes: 1_500_000, steps: None, ..small() };
    let mut seen = 0;
    let files = write_files(&dir, &options, true, &mut |bytes| {
        assert!(bytes > seen);
        seen = bytes;
        true
    });
    let files = files.expect("the folder can be written");
    let wanted = ["rank0.pt.trace.json", "rank0.truth.json", "rank1.pt.trace.json", "rank1.truth.json"];
    assert_eq!(names(&dir), wanted);
    let steps = files[0].steps;
    for (rank, file) in files.iter().enumerate() {
        let options = DemoOptions { rank: rank as u32, steps: Some(steps), ..options.clone() };
        let (bytes, expected) = write(&options);
        assert!(fs::read(&file.trace).expect("the trace is there") == bytes);
        assert_eq!((file.json_bytes, file.steps), (expected.json_bytes, expected.steps.len() as u64));
        let truth = fs::read(file.truth_path.as_ref().expect("asked for")).expect("the truth is there");
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&truth).expect("JSON"), expected.to_json());
    }
    fs::remove_dir_all(&dir).expect("removable");
}

#[test]
fn a_file_that_is_not_finished_is_removed() {
    let dir = folder("stopped");
    let options = DemoOptions { gzip: true, ..small() };
    let mut calls = 0;
    let stopped = write_files(&dir, &options, false, &mut |_| {
        calls += 1;
        calls <= 7
    });
    assert_eq!(stopped.expect_err("stopped").kind(), std::io::ErrorKind::Interrupted);
    assert_eq!(names(&dir), ["rank0.pt.trace.json.gz"]);
    fs::remove_dir_all(&dir).expect("removable");
}
