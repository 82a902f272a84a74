//! Inflates a gzip file and does nothing with the bytes: what reading one is measured against.
//!
//! `cargo run --release --example inflate -- trace.json.gz`
//! `cargo run --release --example inflate -- --keep trace.json.gz`
//!
//! The inflater, its input buffer and the size of its output are those of the reader. Without `--keep` each
//! piece overwrites the one before, in the processor's caches: the time that reading cannot go below.
//! With it, the whole content is in memory in the end, as for a program that inflates a file to use it.
#![allow(clippy::print_stdout)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, Error, ErrorKind, Read, Result};
use std::time::Instant;

use flate2::bufread::MultiGzDecoder;

const INPUT_BYTES: usize = 256 << 10;
const OUTPUT_BYTES: usize = 1 << 20;

fn main() -> Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (is_kept, path) = match arguments.as_slice() {
        [path] => (false, path),
        [option, path] if option == "--keep" => (true, path),
        _ => return Err(Error::new(ErrorKind::InvalidInput, "usage: inflate [--keep] FILE")),
    };
    // Both find the file where the first pass left it: in the caches of the system.
    let content_bytes = discard(path)?;
    let start = Instant::now();
    if is_kept {
        retain(path, content_bytes)?
    } else {
        discard(path)?
    };
    let seconds = start.elapsed().as_secs_f64();
    println!("{{\"seconds\": {seconds}, \"content_bytes\": {content_bytes}}}");
    Ok(())
}

fn decoder(path: &OsStr) -> Result<MultiGzDecoder<BufReader<File>>> {
    Ok(MultiGzDecoder::new(BufReader::with_capacity(INPUT_BYTES, File::open(path)?)))
}

/// Inflates into one buffer that is used again.
fn discard(path: &OsStr) -> Result<usize> {
    let (mut decoder, mut output) = (decoder(path)?, vec![0; OUTPUT_BYTES]);
    let mut bytes = 0;
    loop {
        match decoder.read(&mut output)? {
            0 => return Ok(bytes),
            read => bytes += read,
        }
    }
}

/// Inflates into memory of the right size that is held to the end.
fn retain(path: &OsStr, content_bytes: usize) -> Result<usize> {
    let (mut decoder, mut content) = (decoder(path)?, vec![0; content_bytes]);
    let mut bytes = 0;
    while bytes < content_bytes {
        let end = content_bytes.min(bytes + OUTPUT_BYTES);
        match decoder.read(&mut content[bytes..end])? {
            0 => break,
            read => bytes += read,
        }
    }
    std::hint::black_box(&content);
    Ok(bytes)
}
