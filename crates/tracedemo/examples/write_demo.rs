//! Writes demo traces: `write_demo DIR MEGABYTES [RANKS] [LAYOUT] [gzip]`.

use std::path::PathBuf;
use std::time::Instant;

use tracedemo::{DemoOptions, Layout, write_files};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("a folder is missing")?);
    let megabytes: u64 = args.next().ok_or("a size in MB is missing")?.parse()?;
    let ranks = args.next().map_or(Ok(2), |ranks| ranks.parse())?;
    let layout = args.next().and_then(|name| Layout::from_name(&name)).unwrap_or_default();
    let gzip = args.next().is_some();
    let options =
        DemoOptions { size_bytes: megabytes * 1_000_000, ranks, layout, gzip, ..DemoOptions::default() };
    let begin = Instant::now();
    let files = write_files(&dir, &options, true, &mut |_| true)?;
    let bytes: u64 = files.iter().map(|file| file.json_bytes).sum();
    let seconds = begin.elapsed().as_secs_f64();
    let report = format!("{bytes} bytes in {seconds:.2} s, {:.0} MB/s\n", bytes as f64 / seconds / 1e6);
    std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes())?;
    Ok(())
}
