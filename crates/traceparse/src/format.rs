//! Tells the format of a file from its first bytes.

use std::path::Path;

use crate::error::{Error, ErrorKind};

/// A format that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON of the PyTorch profiler; the content starts at this byte.
    Kineto {
        /// Bytes of a byte-order mark.
        skip: usize,
    },
    /// A database; its tables tell which tool wrote it.
    Sqlite,
}

/// The format of a file that begins with `head`.
pub(crate) fn detect(head: &[u8], path: &Path) -> Result<Format, Error> {
    let refuse = |message: &str| Err(Error::new(ErrorKind::UnknownFormat, message).with_path(path));
    let skip = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let text = head[skip..].trim_ascii_start();
    match text {
        _ if is_perfetto(head) => refuse(
            "is a Perfetto protobuf trace; export the profile as Chrome JSON (a name that ends in .json)",
        ),
        [b'{' | b'[', ..] => Ok(Format::Kineto { skip }),
        [] if head.is_empty() => refuse("is empty"),
        [] => refuse("holds nothing but white space"),
        _ if head.starts_with(b"SQLite format 3\0") => Ok(Format::Sqlite),
        _ if is_nsys_report(path) => {
            refuse("is a report of nsys, which only nsys can read; export it: nsys export --type sqlite FILE")
        }
        _ if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") => {
            refuse("is UTF-16 text; convert it to UTF-8")
        }
        _ if head.starts_with(b"PK\x03\x04") => {
            refuse("is a zip archive; unpack it and name the trace inside")
        }
        _ => refuse("is no trace: expected the JSON of the PyTorch profiler, plain or compressed"),
    }
}

/// Whether the path is named like the recorder's own files.
fn is_nsys_report(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["nsys-rep", "qdrep", "qdstrm"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Whether `head` is binary and begins with field 1 of a protobuf, length-delimited.
///
/// The tag is a line feed, and the length behind it can be the code of a bracket.
fn is_perfetto(head: &[u8]) -> bool {
    let is_binary = |b: &u8| b.is_ascii_control() && !b.is_ascii_whitespace();
    head.first() == Some(&0x0a) && head.iter().take(64).any(is_binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(head: &[u8]) -> String {
        detect(head, Path::new("f")).unwrap_err().to_string()
    }

    #[test]
    fn json_is_found_behind_white_space_and_marks() {
        assert_eq!(detect(b"\n {\"a\"", Path::new("f")).unwrap(), Format::Kineto { skip: 0 });
        assert_eq!(detect(b"\xef\xbb\xbf[", Path::new("f")).unwrap(), Format::Kineto { skip: 3 });
    }

    #[test]
    fn databases_are_known_by_their_first_bytes() {
        assert_eq!(detect(b"SQLite format 3\0...", Path::new("f")).unwrap(), Format::Sqlite);
    }

    #[test]
    fn other_files_are_named() {
        assert_eq!(message(b""), "f: is empty");
        assert!(message(b" \n").contains("white space"));
        let report = detect(b"\x08\x01", Path::new("a.nsys-rep")).unwrap_err().to_string();
        assert!(report.contains("nsys export"));
        assert!(message(b"\x0a\xd3\x02\x08\x00\x12").contains("Perfetto"));
        assert!(message(b"\x0a{\x40\x01\x12\x00").contains("Perfetto"));
        assert!(message(b"PK\x03\x04").contains("zip"));
        assert!(message(b"\xff\xfe{\0").contains("UTF-16"));
        assert!(message(b"hello").contains("no trace"));
    }
}
