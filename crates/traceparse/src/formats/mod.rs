//! The formats of traces, each in a folder of its own.
//!
//! A format is a module with a constant `FORMAT` that implements [`Format`], and its name in the list below.
//! Formats never import one another. All share `interner` and `foreign`, and those of databases what stands in `sqlite`.

mod foreign;
pub(crate) mod format;
pub(crate) mod interner;
pub(crate) mod sqlite;

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::formats::format::{Format, Opened};

/// Declares the formats; the first that takes a file reads it.
macro_rules! formats {
    ($( $format:ident, )*) => {
        $( pub(crate) mod $format; )*

        static FORMATS: &[&dyn Format] = &[$( &$format::FORMAT ),*];
    };
}

formats! {
    kineto,
    nvprof,
    nsys,
}

/// Opens the file at `path`, and finds the format it has.
pub(crate) fn open(path: &Path) -> Result<(&'static dyn Format, Opened<'_>)> {
    let file = Opened::new(path)?;
    match FORMATS.iter().find(|format| format.takes(&file)) {
        Some(&format) => Ok((format, file)),
        None => Err(refusal(&file)),
    }
}

/// The error for a file of no known format.
fn refusal(file: &Opened<'_>) -> Error {
    let head = file.head();
    let message = match file.catalog() {
        Some(catalog) if catalog.tables().next().is_none() => "is an SQLite database without tables",
        Some(catalog) => foreign::database(catalog).unwrap_or(
            "is an SQLite database, but not an nsys export: it has none of the tables that nsys writes",
        ),
        None if head.is_empty() => "is empty",
        None if head.trim_ascii_start().is_empty() => "contains only white space",
        None if head.starts_with(b"PK\x03\x04") => "is a zip archive. Unpack it and pass the trace inside",
        None => foreign::binary(file.path, head)
            .or_else(|| FORMATS.iter().find_map(|format| format.advice(file)))
            .unwrap_or("is not a trace: expected JSON of the PyTorch profiler, plain or compressed"),
    };
    Error::new(ErrorKind::UnknownFormat, message)
}

#[cfg(test)]
mod tests {
    use std::fs;

    fn message(name: &str, head: &[u8]) -> String {
        let path = std::env::temp_dir().join(format!("traceparse-formats-{}-{name}", std::process::id()));
        fs::write(&path, head).unwrap();
        let found = super::open(&path).map(|(format, _)| format.name().to_owned());
        fs::remove_file(&path).unwrap();
        found.unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn json_is_found_behind_white_space_and_marks() {
        assert_eq!(message("space", b"\n {\"a\""), "kineto");
        assert_eq!(message("mark", b"\xef\xbb\xbf["), "kineto");
    }

    #[test]
    fn other_files_are_named() {
        assert_eq!(message("empty", b""), "is empty");
        assert!(message("blank", b" \n").contains("white space"));
        assert!(message("a.nsys-rep", b"\x08\x01").contains("nsys export"));
        assert!(message("perfetto", b"\x0a\xd3\x02\x08\x00\x12").contains("Perfetto"));
        assert!(message("braced", b"\x0a{\x40\x01\x12\x00").contains("Perfetto"));
        assert!(message("zip", b"PK\x03\x04").contains("zip"));
        assert!(message("utf16", b"\xff\xfe{\0").contains("UTF-16"));
        assert!(message("other", b"hello").contains("not a trace"));
    }
}
