//! Inflates gzip files and does nothing with the bytes: the time that reading one cannot go below.
//!
//! `cargo run --release --example inflate -- trace.json.gz`
//!
//! The inflater, its input buffer and the size of its output are those of the reader.
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io::{BufReader, Read};
use std::time::Instant;

use flate2::bufread::MultiGzDecoder;

const INPUT_BYTES: usize = 256 << 10;
const OUTPUT_BYTES: usize = 1 << 20;

fn main() -> std::io::Result<()> {
    let mut output = vec![0; OUTPUT_BYTES];
    for path in std::env::args_os().skip(1) {
        let start = Instant::now();
        let file = BufReader::with_capacity(INPUT_BYTES, File::open(&path)?);
        let mut decoder = MultiGzDecoder::new(file);
        let mut bytes = 0;
        loop {
            match decoder.read(&mut output)? {
                0 => break,
                read => bytes += read,
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{{\"seconds\": {seconds}, \"content_bytes\": {bytes}}}");
    }
    Ok(())
}
