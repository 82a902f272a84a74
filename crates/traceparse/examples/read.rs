//! Reads a trace and prints its tables' sizes, what was found, and the time it took.
//!
//! `cargo run --release --example read -- trace.json.gz`
#![allow(clippy::print_stdout)]

use std::time::Instant;

use traceparse::{ReadOptions, read};

fn main() -> traceparse::Result<()> {
    for path in std::env::args_os().skip(1) {
        let start = Instant::now();
        let trace = read(path.as_ref(), &ReadOptions::default())?;
        let read_s = start.elapsed().as_secs_f64();
        let stats = &trace.stats;
        println!("{}: {:.3} s", path.to_string_lossy(), read_s);
        println!(
            "  {:.0} MB/s, {} seen, {} kept, {} dropped",
            trace.meta.content_bytes as f64 / read_s / 1e6,
            stats.seen,
            stats.kept,
            stats.dropped
        );
        for (code, finding) in stats.findings() {
            println!(
                "  {:8} {:24} {} (first at {:?})",
                code.severity().name(),
                code.name(),
                finding.count,
                finding.first_offset
            );
        }
        let batches = trace.tables.into_batches(&trace.symbols);
        let sizes: Vec<_> = batches
            .iter()
            .filter(|(_, b)| b.num_rows() > 0)
            .map(|(n, b)| format!("{n} {}", b.num_rows()))
            .collect();
        println!("  {}", sizes.join(", "));
        println!("  exported after {:.3} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}
