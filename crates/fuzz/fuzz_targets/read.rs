//! The whole reader on any bytes: it ends without a panic, and every event is accounted for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceparse::ReadOptions;
use traceparse_fuzz::read_bytes;

fuzz_target!(|content: &[u8]| {
    let options = ReadOptions { threads: Some(1), chunk_bytes: Some(64 << 10), ..ReadOptions::default() };
    if let Ok(trace) = read_bytes(content, &options) {
        let stats = &trace.stats;
        assert_eq!(stats.seen, stats.kept + stats.dropped);
        // The export must not fail on anything that was read.
        let rows: usize = trace.tables.into_batches(&trace.symbols).iter().map(|(_, batch)| batch.num_rows()).sum();
        assert!(rows as u64 >= stats.kept);
    }
});
