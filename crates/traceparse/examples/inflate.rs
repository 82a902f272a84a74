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
    let content_bytes = inflate(path, OUTPUT_BYTES)?;
    let start = Instant::now();
    inflate(path, if is_kept { content_bytes } else { OUTPUT_BYTES })?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{{\"seconds\": {seconds}, \"content_bytes\": {content_bytes}}}");
    Ok(())
}

/// Inflates into memory of a size, from its start again where it is full; returns the bytes of the content.
fn inflate(path: &OsStr, memory: usize) -> Result<usize> {
    let mut decoder = MultiGzDecoder::new(BufReader::with_capacity(INPUT_BYTES, File::open(path)?));
    let mut output = vec![0; memory.max(OUTPUT_BYTES)];
    let mut bytes = 0;
    loop {
        let at = bytes % output.len();
        let end = output.len().min(at + OUTPUT_BYTES);
        match decoder.read(&mut output[at..end])? {
            0 => break,
            read => bytes += read,
        }
    }
    std::hint::black_box(&output);
    Ok(bytes)
}
