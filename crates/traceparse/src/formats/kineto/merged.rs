//! Files into which several ranks were merged: which rank each event is of, and what the rank itself calls its
//! processes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::schema::{Column, SymbolTable, Table, Tables};
use crate::trace::{Merged, RankName};
use crate::tracks::{Ident, TrackTable};

/// Numbers of processes are raised by no less.
const LEAST_RAISE: i64 = 1000;
/// How a file tells of which rank an event is.
pub(super) enum Way {
    /// By a label before the process (SGLang: `[TP00-DP01] 83`): the rank, and the process without it.
    Labels(HashMap<Ident, (u32, Ident)>),
    /// By numbers of processes that were raised by a multiple of this; the factors of the ranks.
    Raised(i64, Vec<i64>),
    /// By an argument alone; the ranks of processes of which only one uses the number.
    Members(HashMap<Ident, Option<u32>>),
}

impl Way {
    /// The rank that a process is of.
    fn rank(&self, pid: Ident) -> Option<u32> {
        match (self, pid) {
            (Self::Labels(of_pids), _) => of_pids.get(&pid).map(|&(rank, _)| rank),
            (Self::Raised(by, factors), Ident::Int(pid)) => {
                factors.binary_search(&pid.div_euclid(*by)).ok().map(|rank| rank as u32)
            }
            (Self::Raised(..), _) => None,
            (Self::Members(of_pids), _) => of_pids.get(&pid).copied().flatten(),
        }
    }

    /// The process as its rank calls it.
    pub(super) fn own(&self, pid: Ident) -> Ident {
        match (self, pid) {
            (Self::Labels(of_pids), _) => of_pids.get(&pid).map_or(pid, |&(_, own)| own),
            (&Self::Raised(by, _), Ident::Int(number)) if self.rank(pid).is_some() => {
                Ident::Int(number.rem_euclid(by))
            }
            _ => pid,
        }
    }
}

/// The ranks of a file of several: of `labels` if there are any. `elsewhere` are the processes of events of GPUs, by
/// row, where the process is not the GPU's number.
pub(super) fn find(
    tables: &mut Tables,
    tracks: &TrackTable,
    symbols: &SymbolTable,
    elsewhere: &HashMap<u32, Ident>,
    labels: Option<(Way, Vec<RankName>)>,
) -> Option<Merged> {
    let told = told(tables, symbols);
    let found = labels.or_else(|| raised(tables, tracks, elsewhere));
    let (way, names) = found.or_else(|| members(tables, tracks, elsewhere, &told))?;
    let mut of_rows = vec![None; tables.next_row() as usize];
    let mut unranked = 0;
    for (row, pid) in processes_of_events(tables, tracks, elsewhere) {
        let by_member =
            || names.binary_search_by_key(told.get(&row)?, |name| name.number).ok().map(|at| at as u32);
        let rank = way.rank(pid).or_else(by_member);
        of_rows[row as usize] = rank;
        unranked += u64::from(rank.is_none());
    }
    let own_devices = |rows: &Column<u32>, devices: &Column<i32>| -> Column<i32> {
        let own = |(&row, device): (&u32, Option<i32>)| {
            let recorded = device.map(|device| Ident::Int(device.into()));
            let pid = recorded.or_else(|| elsewhere.get(&row).copied())?;
            i32::try_from(way.own(pid).int()?).ok()
        };
        rows.values().iter().zip(devices.iter()).map(own).collect()
    };
    let Tables { gpu_ops, gpu_annotations, syncs, .. } = tables;
    gpu_ops.device = own_devices(&gpu_ops.row, &gpu_ops.device);
    gpu_annotations.device = own_devices(&gpu_annotations.row, &gpu_annotations.device);
    syncs.device = own_devices(&syncs.row, &syncs.device);
    let pids = (0..tracks.len() as u32).map(|track| way.own(tracks.key(track).0)).collect();
    Some(Merged { names, of_rows, unranked, pids })
}

/// The process of each event with its row; of an event of a GPU the GPU where nothing else is recorded.
fn processes_of_events(
    tables: &Tables,
    tracks: &TrackTable,
    elsewhere: &HashMap<u32, Ident>,
) -> Vec<(u32, Ident)> {
    let mut events = Vec::new();
    let Tables { gpu_ops, gpu_annotations, syncs, .. } = tables;
    let of_gpus = [
        (&gpu_ops.row, &gpu_ops.device),
        (&gpu_annotations.row, &gpu_annotations.device),
        (&syncs.row, &syncs.device),
    ];
    for (rows, devices) in of_gpus {
        let place = |(&row, device): (&u32, Option<i32>)| {
            let device = device.map_or(Ident::Missing, |device| Ident::Int(device.into()));
            (row, elsewhere.get(&row).copied().unwrap_or(device))
        };
        events.extend(rows.values().iter().zip(devices.iter()).map(place));
    }
    macro_rules! on_tracks {
        ($($table:ident),*) => { $(
            let on_track = tables.$table.row.values().iter().zip(tables.$table.track.values());
            events.extend(on_track.map(|(&row, &track)| (row, tracks.key(track).0)));
        )* };
    }
    on_tracks!(ops, launches, python, ranges, memory, counters, instants, flows, spans, metadata);
    events
}

/// The ranks by the labels of processes.
pub(super) fn labels(
    tracks: &TrackTable,
    symbols: &mut SymbolTable,
    elsewhere: &HashMap<u32, Ident>,
) -> Option<(Way, Vec<RankName>)> {
    let of_tracks = (0..tracks.len() as u32).map(|track| tracks.key(track).0);
    let pids = of_tracks.chain(elsewhere.values().copied()).filter_map(Ident::text);
    let mut parted = Vec::new();
    for pid in pids.collect::<BTreeSet<_>>() {
        if let Some((label, own)) = label_of(symbols.text(pid)) {
            parted.push((Ident::Text(pid), label.to_owned(), own.to_owned()));
        }
    }
    let labels: BTreeSet<&str> = parted.iter().map(|(_, label, _)| &**label).collect();
    let names = numbered(labels.into_iter().map(named).collect());
    let mut of_pids = HashMap::new();
    for (pid, label, own) in &parted {
        let rank = names.iter().position(|name| name.label.as_deref() == Some(label))?;
        let own = own.parse().map_or_else(|_| Ident::Text(symbols.intern(own)), Ident::Int);
        of_pids.insert(*pid, (rank as u32, own));
    }
    (!names.is_empty()).then_some((Way::Labels(of_pids), names))
}

/// The label of a rank, as in `[TP00-DP01] 83`, `[rank 1] 83` or `rank1: 83`, and what stands behind it.
fn label_of(process: &str) -> Option<(&str, &str)> {
    let is_label = |label: &str| label.eq_ignore_ascii_case("unknown") || !counts(label).is_empty();
    let (label, own) = match process.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => {
            let digits = process.find(|c: char| c.is_ascii_digit())?;
            let behind = &process[digits..];
            let end = behind.find(|c: char| !c.is_ascii_digit())?;
            process.split_at(digits + end)
        }
    };
    if process.starts_with('[')
        && let Some(own) = own.strip_prefix(' ')
    {
        // The process may be -1, or an empty text.
        return is_label(label).then_some((label, own));
    }
    let own = own.trim_start_matches([' ', ':', '/', '-', '_', '.', ',']);
    (is_label(label) && !own.is_empty()).then_some((label, own))
}

/// What a label counts: letters and the number behind them, in lower case.
fn counts(label: &str) -> BTreeMap<String, i64> {
    let words = label.split(['-', ',', '/', '|']).filter_map(|word| {
        let digits = word.find(|c: char| c.is_ascii_digit())?;
        let name = word[..digits].trim_matches([' ', '_', ':', '=', '#']).to_ascii_lowercase();
        (name == "rank" || RankName::PARTS.contains(&&*name))
            .then_some((name, word[digits..].trim().parse().ok()?))
    });
    words.collect()
}

/// A rank with what its label says of it; its number only where the label is that of a rank.
fn named(label: &str) -> RankName {
    let mut counts = counts(label);
    let number = counts.remove("rank").and_then(|number| i32::try_from(number).ok());
    let parts = RankName::PARTS.map(|part| counts.get(part).copied());
    RankName { number: number.unwrap_or(-1), label: Some(label.to_owned()), parts }
}

/// The ranks in order, numbered as their labels do, else by the one part that tells all apart, else from 0.
fn numbered(mut names: Vec<RankName>) -> Vec<RankName> {
    names.sort_by_key(|name| (name.number, name.parts));
    let numbers_by = |of: &dyn Fn(&RankName) -> Option<i64>| {
        let numbers: Vec<i32> = names.iter().filter_map(|name| i32::try_from(of(name)?).ok()).collect();
        let are_apart = numbers.iter().collect::<BTreeSet<_>>().len() == names.len();
        (are_apart && numbers.iter().all(|&number| number >= 0)).then_some(numbers)
    };
    let by_part = || (0..RankName::PARTS.len()).rev().find_map(|part| numbers_by(&|name| name.parts[part]));
    let found = numbers_by(&|name| Some(name.number.into())).or_else(by_part);
    let numbers = found.unwrap_or_else(|| (0..names.len() as i32).collect());
    for (name, number) in names.iter_mut().zip(numbers) {
        name.number = number;
    }
    names.sort_by_key(|name| name.number);
    names
}

/// The ranks by numbers that were raised: those of GPUs tell by how much.
fn raised(
    tables: &Tables,
    tracks: &TrackTable,
    elsewhere: &HashMap<u32, Ident>,
) -> Option<(Way, Vec<RankName>)> {
    let Tables { gpu_ops, launches, .. } = tables;
    let mut differences = BTreeSet::new();
    let mut raised_works = 0;
    for (row, pid) in elsewhere {
        if let Ok(work) = gpu_ops.row.values().binary_search(row) {
            differences.insert(pid.int()?.checked_sub(gpu_ops.device.get(work)?.into())?);
            raised_works += 1;
        }
    }
    let by = differences.iter().copied().reduce(greatest_common_divisor).filter(|&by| by >= LEAST_RAISE)?;
    let mut factors: Vec<i64> = differences.into_iter().map(|difference| difference / by).collect();
    if raised_works < gpu_ops.len() {
        factors.insert(0, 0);
    }
    let callers: BTreeSet<_> =
        launches.track.values().iter().map(|&track| tracks.key(track).0.int()).collect();
    let callers: BTreeSet<i64> =
        callers.into_iter().map(|pid| Some(pid?.div_euclid(by))).collect::<Option<_>>()?;
    let is_sure = factors.len() > 1 && factors[0] >= 0 && callers.iter().eq(&factors);
    let numbers = factors.iter().map(|&factor| i32::try_from(factor).ok());
    let names: Option<Vec<RankName>> =
        numbers.map(|number| Some(RankName { number: number?, ..RankName::default() })).collect();
    Some((Way::Raised(by, factors), names.filter(|_| is_sure)?))
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// What an argument `rank` says of events (TraceLens), by row.
fn told(tables: &Tables, symbols: &SymbolTable) -> HashMap<u32, i32> {
    let extra = &tables.extra_args;
    let Some(key) = symbols.find("rank") else { return HashMap::new() };
    let rows = extra.row.values().iter().zip(extra.key.values()).zip(extra.value.values());
    let of_key = rows.filter(|((_, found), _)| **found == key);
    of_key
        .filter_map(|((&row, _), &value)| Some((row, symbols.text(value).trim_matches('"').parse().ok()?)))
        .collect()
}

/// The ranks by what is told of all work of GPUs.
fn members(
    tables: &Tables,
    tracks: &TrackTable,
    elsewhere: &HashMap<u32, Ident>,
    told: &HashMap<u32, i32>,
) -> Option<(Way, Vec<RankName>)> {
    let works = tables.gpu_ops.row.values();
    let numbers: BTreeSet<i32> = works.iter().map(|row| told.get(row).copied()).collect::<Option<_>>()?;
    if numbers.len() < 2 || numbers.first().is_none_or(|&first| first < 0) {
        return None;
    }
    let names: Vec<RankName> =
        numbers.into_iter().map(|number| RankName { number, ..RankName::default() }).collect();
    let mut of_pids = HashMap::new();
    for (row, pid) in processes_of_events(tables, tracks, elsewhere) {
        let rank =
            told.get(&row).and_then(|number| names.binary_search_by_key(number, |name| name.number).ok());
        if let Some(rank) = rank.map(|rank| rank as u32) {
            let known = of_pids.entry(pid).or_insert(Some(rank));
            // What several ranks share tells nothing.
            *known = known.filter(|&known| known == rank);
        }
    }
    Some((Way::Members(of_pids), names))
}
