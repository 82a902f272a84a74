//! The same bytes in one piece on one thread and in small pieces on several: the same tables.
//!
//! The first two bytes of the input choose the size of the pieces and the number of threads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceparse::{ReadOptions, Trace};
use traceparse_fuzz::read_bytes;

fuzz_target!(|input: &[u8]| {
    let [size, threads, content @ ..] = input else { return };
    // Sizes from 1 byte to some kilobytes, small ones more often.
    let size = 1 + usize::from(*size) * (1 + usize::from(*size) / 16);
    let read = |chunk_bytes, threads| {
        let options = ReadOptions { threads: Some(threads), chunk_bytes: Some(chunk_bytes), ..ReadOptions::default() };
        read_bytes(content, &options)
    };
    match (read(content.len() + 1, 1), read(size, 1 + usize::from(threads % 4))) {
        (Ok(whole), Ok(pieces)) => assert_same(whole, pieces),
        (Err(whole), Err(pieces)) => assert_eq!(whole.to_string(), pieces.to_string()),
        (whole, pieces) => panic!("{:?} is not {:?}", whole.err(), pieces.err()),
    }
});

fn assert_same(whole: Trace, pieces: Trace) {
    assert_eq!(whole.stats, pieces.stats);
    assert_eq!(whole.meta.properties, pieces.meta.properties);
    let whole = whole.tables.into_batches(&whole.symbols);
    let pieces = pieces.tables.into_batches(&pieces.symbols);
    for (whole, pieces) in whole.iter().zip(&pieces) {
        assert_eq!(whole, pieces);
    }
}
