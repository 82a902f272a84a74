//! What is read does not depend on how the bytes are cut into chunks, nor on the number of threads.

use proptest::prelude::*;
use traceparse::ReadOptions;

use crate::reading::{TraceFile, pieces, reading_of};
use crate::writer::{damaged, damages, documents};

/// Sizes of chunks: mostly of the order of an event, or of what is looked at around a cut.
fn chunk_sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1..40_usize, 40..1200_usize, 1200..5000_usize, 5000..100_000_usize];
    proptest::collection::vec(size, 2)
}

fn assert_same_in_pieces(text: &[u8], sizes: &[usize], threads: usize) -> Result<(), TestCaseError> {
    let file = TraceFile::new(text);
    let whole = reading_of(file.path(), &pieces(text.len() + 1, 1));
    if let Ok(whole) = &whole {
        whole.check_accounts();
    }
    for (i, &size) in sizes.iter().enumerate() {
        let options = pieces(size, 1 + (threads + i) % 4);
        match (&whole, reading_of(file.path(), &options)) {
            (Ok(whole), Ok(parts)) => prop_assert!(
                *whole == parts,
                "pieces of {}: {:?} {:?}\nnot as {:?} {:?}\nbut for {:?}\nfrom {}",
                size,
                parts.stats,
                parts.meta,
                whole.stats,
                whole.meta,
                whole.difference(&parts),
                text.escape_ascii()
            ),
            (Err(whole), Err(parts)) => prop_assert_eq!(whole.to_string(), parts.to_string()),
            (whole, parts) => prop_assert!(false, "{:?}\n{:?}", whole, parts),
        }
    }
    Ok(())
}

fn assert_strict_same_in_pieces(text: &[u8], sizes: &[usize]) -> Result<(), TestCaseError> {
    let file = TraceFile::new(text);
    let strict = |size, threads| {
        let options = ReadOptions { strict: true, ..pieces(size, threads) };
        reading_of(file.path(), &options).map(|_| ()).map_err(|e| (e.kind(), e.offset(), e.to_string()))
    };
    let whole = strict(text.len() + 1, 1);
    for &size in sizes {
        prop_assert_eq!(&whole, &strict(size, 3), "pieces of {} from {}", size, text.escape_ascii());
    }
    Ok(())
}

proptest! {
    #[test]
    fn valid_traces(document in documents(0..30), sizes in chunk_sizes(), threads in 0..4_usize) {
        assert_same_in_pieces(document.text(1).as_bytes(), &sizes, threads)?;
    }

    #[test]
    fn damaged_traces(
        document in documents(1..20),
        damages in damages(),
        sizes in chunk_sizes(),
        threads in 0..4_usize,
    ) {
        let text = damaged(&document.text(1), &damages);
        assert_same_in_pieces(&text, &sizes, threads)?;
        assert_strict_same_in_pieces(&text, &sizes)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn large_damaged_traces(
        document in documents(5..20),
        times in 10..60_usize,
        damages in damages(),
        sizes in chunk_sizes(),
        threads in 0..4_usize,
    ) {
        let sizes: Vec<_> = sizes.into_iter().map(|size| size + 100).collect();
        assert_same_in_pieces(&damaged(&document.text(times), &damages), &sizes, threads)?;
    }
}
