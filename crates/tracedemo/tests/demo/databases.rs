//! Databases hold what their truth says, each as the recorder would have written it.

use rusqlite::Connection;
use std::path::PathBuf;
use tracedemo::{DatabaseKind, DatabaseTruth, DemoOptions, ProcessTruth, write_database};

fn options(ranks: u32) -> DemoOptions {
    DemoOptions { ranks, steps: Some(2), layers: Some(1), ..DemoOptions::default() }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tracedemo-{}-{name}", std::process::id()))
}

fn written(name: &str, kind: DatabaseKind, options: &DemoOptions) -> (DatabaseTruth, Connection, Vec<u8>) {
    let path = path(name);
    let truth = write_database(&path, kind, options, &mut |_| true).expect("written");
    let bytes = std::fs::read(&path).expect("readable");
    let connection = Connection::open(&path).expect("a database");
    std::fs::remove_file(&path).expect("removed");
    (truth, connection, bytes)
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(&format!("SELECT {sql}"), [], |row| row.get(0)).expect("a number")
}

#[test]
fn rows_of_nsys_are_counted() {
    let (truth, connection, bytes) = written("counted.sqlite", DatabaseKind::Nsys, &options(2));
    assert_eq!(truth.file_bytes, bytes.len() as u64);
    assert_eq!(truth.processes.len(), 2);
    let sum = |of: fn(&ProcessTruth) -> i64| truth.processes.iter().map(of).sum::<i64>();
    for (rows, expected) in [
        ("count(*) FROM NVTX_EVENTS", sum(|process| process.ranges() as i64)),
        (
            "count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL",
            sum(|process| process.truth.kernels.values().map(|kernel| kernel.calls as i64).sum()),
        ),
        (
            "count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME",
            sum(|process| process.truth.launches.values().map(|call| call.calls as i64).sum()),
        ),
        (
            "sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL",
            sum(|process| process.truth.kernels.values().map(|kernel| kernel.total_ns).sum()),
        ),
    ] {
        assert_eq!(number(&connection, rows), expected, "{rows}");
    }
}

#[test]
fn correlation_ids_of_processes_meet() {
    let (_, connection, _) = written("meet.sqlite", DatabaseKind::Nsys, &options(2));
    let shared = "count(*) FROM (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME
                  GROUP BY correlationId HAVING count(DISTINCT globalTid >> 24) > 1)";
    assert!(number(&connection, shared) > 100);
    let repeated = "count(*) FROM (SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME
                    GROUP BY correlationId, globalTid >> 24 HAVING count(*) > 1)";
    assert_eq!(number(&connection, repeated), 0, "within a process each call has its own");
}

#[test]
fn operators_are_named_as_emit_nvtx_does() {
    let (_, connection, _) = written("text.sqlite", DatabaseKind::Nsys, &options(1));
    let like = "SELECT text FROM NVTX_EVENTS WHERE text LIKE 'aten::addmm, seq = %' LIMIT 1";
    let text: String = connection.query_row(like, [], |row| row.get(0)).expect("a text");
    assert!(text.contains(", op_id = ") && text.contains(", sizes = [["), "{text}");
    assert_eq!(number(&connection, "count(*) FROM NVTX_EVENTS WHERE text LIKE 'ProfilerStep#%'"), 2);
}

#[test]
fn the_same_options_give_the_same_bytes() {
    for kind in DatabaseKind::ALL {
        let (first, _, a) = written("same-a", kind, &options(1));
        let (second, _, b) = written("same-b", kind, &options(1));
        let (_, _, other) = written("same-c", kind, &DemoOptions { seed: 9, ..options(1) });
        assert!(a == b && first == second && a != other, "{}", kind.name());
    }
}

#[test]
fn markers_of_nvprof_come_in_pairs() {
    let (truth, connection, _) = written("pairs.sql", DatabaseKind::Nvprof, &options(1));
    let markers = number(&connection, "count(*) FROM CUPTI_ACTIVITY_KIND_MARKER");
    assert_eq!(markers as u64, 2 * truth.processes[0].ranges());
    let two = write_database(&path("two.sql"), DatabaseKind::Nvprof, &options(2), &mut |_| true);
    assert_eq!(two.expect_err("refused").kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_size_is_reached_and_a_stop_leaves_nothing() {
    let path = path("size.sqlite");
    let options = DemoOptions { ranks: 2, size_bytes: 3_000_000, ..DemoOptions::default() };
    let truth = write_database(&path, DatabaseKind::Nsys, &options, &mut |_| true).expect("written");
    assert!((2_900_000..4_500_000).contains(&truth.file_bytes), "{}", truth.file_bytes);
    let steps: Vec<usize> = truth.processes.iter().map(|process| process.truth.steps.len()).collect();
    assert_eq!(steps[0], steps[1]);
    std::fs::remove_file(&path).expect("removed");
    let stopped = write_database(&path, DatabaseKind::Nsys, &options, &mut |_| false);
    assert_eq!(stopped.expect_err("stopped").kind(), std::io::ErrorKind::Interrupted);
    assert!(!path.exists() && !path.with_extension("sqlite.tmp").exists());
}
