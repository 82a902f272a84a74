//! Parses a JSON file into the values of simd-json: what a program pays that takes the fastest general parser.
//!
//! `cargo run --release --example parse_values -- trace.json`
#![allow(clippy::print_stdout)]

use std::time::Instant;

use simd_json::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: parse_values FILE")?;
    let start = Instant::now();
    let mut content = std::fs::read(path)?;
    let document = simd_json::to_borrowed_value(&mut content)?;
    let seconds = start.elapsed().as_secs_f64();
    let events = document.get_array("traceEvents").or(document.as_array()).map(Vec::len);
    println!("{{\"seconds\": {seconds}, \"events\": {}}}", events.ok_or("the file has no events")?);
    Ok(())
}
