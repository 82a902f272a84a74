//! Compresses what a page or another document holds.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The gzip file of `content`, the same each time; `level` is one of zlib's, 0 to 9.
pub fn gzipped(content: &[u8], level: u32) -> io::Result<Vec<u8>> {
    // Scripts and numbers shrink to a third; more room is found where they do not.
    let room = Vec::with_capacity(content.len() / 3);
    let mut writer = GzEncoder::new(room, Compression::new(level.min(9)));
    writer.write_all(content)?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::gzipped;

    #[test]
    fn what_is_packed_comes_back() {
        let text: Vec<u8> = (0_u32..50_000).flat_map(|number| (number * number).to_le_bytes()).collect();
        for content in [&[][..], b"a", &text] {
            for level in [0, 1, 2, 9, 99] {
                let packed = gzipped(content, level).unwrap();
                let mut unpacked = Vec::new();
                GzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).unwrap();
                assert_eq!(unpacked, content, "level {level}");
                assert_eq!(packed, gzipped(content, level).unwrap());
            }
        }
    }

    #[test]
    fn repeats_take_no_room() {
        assert!(gzipped(&b"a kernel's name, ".repeat(10_000), 2).unwrap().len() < 2_000);
    }
}
