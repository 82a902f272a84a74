//! Traces of several ranks in one file: each becomes a trace of its own, as if it had been recorded alone.

use crate::error::{Error, ErrorKind, Result};
use crate::schema::{Devices, Table, Tables};
use crate::stats::{Code, Stats};
use crate::trace::{Merged, Meta, Trace};

/// The traces of the ranks in a file, or of the one with the number `wanted`; of an ordinary file the trace alone.
///
/// What cannot be told from one another is of the first rank: what is wrong with the file, and events of no rank.
pub(crate) fn split(mut trace: Trace, wanted: Option<i32>) -> Result<Vec<Trace>> {
    let Some(merged) = trace.merged.take() else {
        let own = trace.meta.properties.get("distributedInfo").and_then(|info| info.get("rank"));
        return match wanted {
            Some(rank) if own.and_then(serde_json::Value::as_i64) != Some(rank.into()) => {
                Err(unknown(rank, "the file does not contain several ranks"))
            }
            _ => Ok(vec![trace]),
        };
    };
    let numbers: Vec<String> = merged.names.iter().map(|name| name.number.to_string()).collect();
    let chosen: Vec<usize> = match wanted {
        None => (0..merged.names.len()).collect(),
        Some(rank) => match merged.names.iter().position(|name| name.number == rank) {
            Some(at) => vec![at],
            None => return Err(unknown(rank, &format!("there are {}", numbers.join(", ")))),
        },
    };
    trace.stats.note_many(Code::UnrankedEvent, merged.unranked, None);
    let mut left = std::mem::take(&mut trace.stats);
    let mut parts = parts(trace, &merged, &chosen);
    if wanted.is_some() {
        left.note_many(Code::Filtered, left.kept.saturating_sub(parts[0].stats.kept), None);
    } else {
        for part in &parts[1..] {
            left.seen -= part.stats.seen;
            left.kept -= part.stats.kept;
        }
    }
    parts[0].stats = left;
    Ok(parts)
}

fn unknown(rank: i32, known: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("no event belongs to rank {rank}; {known}"))
}

/// The traces of some ranks.
fn parts(trace: Trace, merged: &Merged, ranks: &[usize]) -> Vec<Trace> {
    let Trace { meta, tables, symbols, tracks, capture, .. } = trace;
    let mut places = vec![None; merged.names.len()];
    ranks.iter().enumerate().for_each(|(place, &rank)| places[rank] = Some(place));
    let place = |row: u32| places[merged.of_rows[row as usize].unwrap_or_default() as usize];
    let mut counts = vec![0; merged.names.len()];
    for rank in merged.of_rows.iter().flatten() {
        counts[*rank as usize] += 1;
    }
    let part = |(mut own, &rank): (Tables, &usize)| {
        own.devices = devices(&tables.devices, merged.names.len(), rank);
        if rank == 0 {
            // The head of the file is that of the first.
            let groups: Vec<usize> = (0..tables.process_groups.len()).collect();
            own.process_groups = tables.process_groups.chosen(&groups);
        }
        let mut tracks = tracks.with_pids(&merged.pids);
        let renumbered = tracks.sort_used(&own.used_tracks(tracks.len()), &symbols);
        own.renumber_tracks(&renumbered);
        let meta =
            Meta { ranks: merged.names.clone(), rank: Some(merged.names[rank].number), ..meta.clone() };
        let mut stats = Stats::default();
        (stats.seen, stats.kept) = (counts[rank], counts[rank]);
        Trace { meta, tables: own, symbols: symbols.clone(), tracks, stats, capture, merged: None }
    };
    tables.split(ranks.len(), place).into_iter().zip(ranks).map(part).collect()
}

/// The GPUs of one rank: where every rank has described its own, those that it did.
fn devices(all: &Devices, ranks: usize, rank: usize) -> Devices {
    let numbers = all.device.values();
    let nth = |at: usize| numbers[..at].iter().filter(|&&number| number == numbers[at]).count();
    let times = |at: usize| numbers.iter().filter(|&&number| number == numbers[at]).count();
    let is_own = |at: usize| nth(at) == if times(at) == ranks { rank } else { 0 };
    all.chosen(&(0..numbers.len()).filter(|&at| is_own(at)).collect::<Vec<_>>())
}
