//! Compressed traces, whole, joined, cut and damaged.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use traceparse::{ErrorKind, ReadOptions};

use crate::reading::{Reading, TraceFile, document, op, pieces, reading, reading_of, reading_with};

fn gzip(content: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    let mut context = zstd_safe::CCtx::create();
    context.set_parameter(zstd_safe::CParameter::ChecksumFlag(true)).unwrap();
    let mut packed = vec![0; zstd_safe::compress_bound(content.len())];
    let written = context.compress2(packed.as_mut_slice(), content).unwrap();
    packed.truncate(written);
    packed
}

fn trace(events: usize) -> Vec<u8> {
    let events: Vec<_> =
        (0..events).map(|i| op(&format!("op{i}")).replace("1.5", &format!("{i}.5"))).collect();
    document(events.join(","))
}

fn assert_like_plain(packed: &[u8], plain: &[u8], compression: &str) -> Reading {
    let packed = reading(packed);
    assert_eq!(packed.meta.compression, compression);
    assert_eq!(packed.meta.content_bytes, plain.len() as u64);
    assert_eq!(packed.tables, reading(plain).tables);
    packed
}

#[test]
fn compression_is_found_from_the_content() {
    let plain = trace(20);
    assert_like_plain(&gzip(&plain, 9), &plain, "gzip");
    assert_like_plain(&zstd(&plain), &plain, "zstd");
    let file = TraceFile::new(gzip(&plain, 1));
    assert_eq!(reading_of(file.path(), &ReadOptions::default()).unwrap().meta.compression, "gzip");
}

#[test]
fn members_and_frames_are_joined() {
    let plain = trace(50);
    let (first, rest) = plain.split_at(700);
    let (second, third) = rest.split_at(1);
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, b'x', b'y', b'z'];
    for pack in [|part: &[u8]| gzip(part, 6), zstd] {
        let packed = [pack(first), pack(b""), pack(second), pack(third)].concat();
        let name = if packed.starts_with(&[0x1f]) { "gzip" } else { "zstd" };
        assert!(assert_like_plain(&packed, &plain, name).findings().is_empty());
    }
    let packed = [&skippable, &zstd(first)[..], &skippable, &zstd(rest)[..], &skippable].concat();
    assert_like_plain(&packed, &plain, "zstd");
}

#[test]
fn a_member_may_begin_anywhere_in_the_buffer() {
    // Stored without compression, so that its size is known: the next member begins at each of the
    // last bytes of a buffer of 256 KiB.
    let plain = trace(4000);
    for end in (256 << 10) - 3..=256 << 10 {
        let stored = |len: usize| gzip(&plain[..len], 0).len();
        let mut len = end - 100;
        while stored(len) < end {
            len += end - stored(len);
        }
        let packed = [gzip(&plain[..len], 0), gzip(&plain[len..], 6)].concat();
        assert!(assert_like_plain(&packed, &plain, "gzip").findings().is_empty(), "{end}");
    }
}

#[test]
fn garbage_behind_the_stream_is_ignored() {
    let plain = trace(20);
    for garbage in [&b"\0\0\0\0\0\0\0\0"[..], b"x", b"hello world"] {
        for packed in [gzip(&plain, 6), zstd(&plain)] {
            let reading = reading([&packed, garbage].concat());
            assert_eq!(reading.events(), (20, 20, 0));
            assert_eq!(reading.findings(), ["trailing_garbage"]);
        }
    }
}

#[test]
fn a_stream_that_is_cut_anywhere_gives_what_came_before() {
    let plain = trace(40);
    for packed in [gzip(&plain, 6), zstd(&plain)] {
        let mut kept = 0;
        for end in 1..packed.len() {
            match reading_with(&packed[..end], &ReadOptions::default()) {
                Ok(reading) => {
                    reading.check_accounts();
                    assert!(reading.findings().contains(&"truncated_compression"), "{end}");
                    assert!(reading.stats.kept >= kept, "{end}");
                    kept = reading.stats.kept;
                }
                Err(e) => {
                    let kinds = [ErrorKind::UnknownFormat, ErrorKind::Damaged];
                    assert!(kept == 0 && kinds.contains(&e.kind()), "{end}: {e}");
                }
            }
        }
    }
}

#[test]
fn a_stream_cut_before_its_content_is_no_empty_file() {
    let packed = gzip(&trace(2), 6);
    let error = reading_with(&packed[..12], &ReadOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("is compressed, and ends"), "{error}");
}

#[test]
fn a_wrong_checksum_is_counted_and_costs_nothing() {
    let plain = trace(20);
    for (mut packed, checksum) in [(gzip(&plain, 6), 8), (zstd(&plain), 4)] {
        let place = packed.len() - checksum;
        packed[place] ^= 1;
        let reading = reading(packed);
        assert_eq!(reading.events(), (20, 20, 0));
        assert_eq!(reading.findings(), ["truncated_compression"]);
    }
}

#[test]
fn a_wrong_checksum_does_not_end_a_zstd_file() {
    let plain = trace(20);
    let (first, rest) = plain.split_at(700);
    let mut packed = zstd(first);
    *packed.last_mut().unwrap() ^= 1;
    packed.extend(zstd(rest));
    let reading = reading(packed);
    assert_eq!(reading.events(), (20, 20, 0));
    assert_eq!(reading.meta.content_bytes, plain.len() as u64);
    assert_eq!(reading.findings(), ["truncated_compression"]);
}

#[test]
fn damage_inside_a_stream_does_not_depend_on_how_it_is_read() {
    let plain = trace(20_000);
    // A few bytes of zstd may be literals, which are then read as other text.
    for (mut packed, damaged) in [(gzip(&plain, 6), 4), (zstd(&plain), 1000)] {
        let middle = packed.len() / 2;
        packed[middle..middle + damaged].fill(0xff);
        let file = TraceFile::new(packed);
        let whole = reading_of(file.path(), &ReadOptions::default()).unwrap();
        whole.check_accounts();
        assert!(whole.stats.kept > 1000 && whole.stats.kept < 20_000, "{:?}", whole.events());
        for (chunk, threads) in [(1000, 1), (100_000, 2)] {
            let other = reading_of(file.path(), &pieces(chunk, threads)).unwrap();
            assert_eq!(whole, other, "{chunk}");
        }
    }
}
