//! Databases hold what their truth says, each as the recorder would have written it.

use rusqlite::Connection;
use std::path::PathBuf;
use tracedemo::{DatabaseKind, DatabaseTruth, DemoOptions, write_database};

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

fn count(connection: &Connection, sql: &str) -> u64 {
    connection.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number") as u64
}

#[test]
fn rows_of_nsys_are_counted() {
    let (truth, connection, bytes) = written("counted.sqlite", DatabaseKind::Nsys, &options(2));
    assert_eq!(truth.file_bytes, bytes.len() as u64);
    assert_eq!(truth.processes.len(), 2);
    let ranges: u64 = truth.processes.iter().map(tracedemo::ProcessTruth::ranges).sum();
    assert_eq!(count(&connection, "SELECT count(*) FROM NVTX_EVENTS"), ranges);
    let calls = |totals: fn(&tracedemo::Truth) -> u64| -> u64 {
        truth.processes.iter().map(|process| totals(&process.truth)).sum()
    };
    let kernels = calls(|truth| truth.kernels.values().map(|kernel| kernel.calls).sum());
    assert_eq!(count(&connection, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"), kernels);
    let launches = calls(|truth| truth.launches.values().map(|call| call.calls).sum());
    assert_eq!(count(&connection, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME"), launches);
    let busy = "SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL";
    let total = calls(|truth| truth.kernels.values().map(|kernel| kernel.total_ns as u64).sum());
    assert_eq!(count(&connection, busy), total);
}

#[test]
fn correlation_ids_of_processes_meet() {
    let (_, connection, _) = written("meet.sqlite", DatabaseKind::Nsys, &options(2));
    let shared = "SELECT count(*) FROM (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME
                  GROUP BY correlationId HAVING count(DISTINCT globalTid >> 24) > 1)";
    assert!(count(&connection, shared) > 100);
    let repeated = "SELECT count(*) FROM (SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME
                    GROUP BY correlationId, globalTid >> 24 HAVING count(*) > 1)";
    assert_eq!(count(&connection, repeated), 0, "within a process each call has its own");
}

#[test]
fn operators_are_told_as_emit_nvtx_does() {
    let (_, connection, _) = written("text.sqlite", DatabaseKind::Nsys, &options(1));
    let like = "SELECT text FROM NVTX_EVENTS WHERE text LIKE 'aten::addmm, seq = %' LIMIT 1";
    let text: String = connection.query_row(like, [], |row| row.get(0)).expect("a text");
    assert!(text.contains(", op_id = ") && text.contains(", sizes = [["), "{text}");
    let steps = "SELECT count(*) FROM NVTX_EVENTS WHERE text LIKE 'ProfilerStep#%'";
    assert_eq!(count(&connection, steps), 2);
}

#[test]
fn the_same_options_give_the_same_bytes() {
    for kind in DatabaseKind::ALL {
        let (first, _, a) = written("same-a", kind, &options(1));
        let (second, _, b) = written("same-b", kind, &options(1));
        assert!(a == b, "{}", kind.name());
        assert_eq!(first, second);
        let (_, _, other) = written("same-c", kind, &DemoOptions { seed: 9, ..options(1) });
        assert!(a != other);
    }
}

#[test]
fn markers_of_nvprof_come_in_pairs() {
    let (truth, connection, _) = written("pairs.sql", DatabaseKind::Nvprof, &options(1));
    let markers = count(&connection, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MARKER");
    assert_eq!(markers, 2 * truth.processes[0].ranges());
    let error = write_database(&path("two.sql"), DatabaseKind::Nvprof, &options(2), &mut |_| true)
        .expect_err("refused");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
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
    let error = write_database(&path, DatabaseKind::Nsys, &options, &mut |_| false).expect_err("stopped");
    assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
    assert!(!path.exists());
    assert!(!path.with_extension("sqlite.tmp").exists());
}
