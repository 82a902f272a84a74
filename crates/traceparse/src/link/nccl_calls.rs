//! What NCCL told of its calls with NVTX payloads, given to the kernels that ran them.
//!
//! A call outside of a group launches its kernels itself. Of a group the end launches them, and what it was made of
//! stands in the ranges between `ncclGroupStart` and `ncclGroupEnd`. Size and own rank of a communicator are told
//! once, when it is made.

use hashbrown::HashMap;

use crate::schema::{CollectiveRow, Symbol, SymbolTable, Table, Tables};
use crate::tracks::{Ident, TrackTable};

const GROUP_START: &str = "ncclGroupStart";
const GROUP_END: &str = "ncclGroupEnd";
const SEND: &str = "ncclSend";
const RECV: &str = "ncclRecv";
const INITIALISES: &str = "ncclCommInit";

/// Ranges around a launch that are looked through for a call.
const MOST_AROUND: usize = 8;

/// Names of NCCL's functions, as far as the trace has them.
struct Functions {
    send: Option<Symbol>,
    recv: Option<Symbol>,
}

/// Completes what is known of calls, and adds it for the kernels that ran them.
pub(super) fn describe(tables: &mut Tables, symbols: &mut SymbolTable, tracks: &TrackTable) {
    let Some(of_range) = symbols.find("range").filter(|_| !tables.collectives.is_empty()) else { return };
    let is_told = |&at: &usize| tables.collectives.source.get(at) == Some(of_range);
    let told: Vec<usize> = (0..tables.collectives.len()).filter(is_told).collect();
    if told.is_empty() {
        return;
    }
    let functions = Functions { send: symbols.find(SEND), recv: symbols.find(RECV) };
    complete(tables, symbols, tracks, &told, &functions);
    let groups = groups(tables, symbols, &told);
    let gpu_op = symbols.intern("gpu_op");
    let by_row: HashMap<u32, usize> =
        told.iter().map(|&at| (tables.collectives.row.values()[at], at)).collect();
    let found: Vec<CollectiveRow> = kernels_by_call(tables)
        .into_iter()
        .flat_map(|(range, kernels)| {
            let calls = calls_around(tables, range, &by_row, &groups);
            described(tables, &calls, &kernels, &functions)
        })
        .map(|row| CollectiveRow { source: gpu_op, ..row })
        .collect();
    found.into_iter().for_each(|row| tables.collectives.push(row));
}

/// Gives each call what its communicator's making told, and its transfer both ends.
fn complete(
    tables: &mut Tables,
    symbols: &SymbolTable,
    tracks: &TrackTable,
    told: &[usize],
    functions: &Functions,
) {
    let Tables { collectives, ranges, .. } = tables;
    let process = |row: u32| -> Option<Ident> {
        let at = ranges.row.values().binary_search(&row).ok()?;
        Some(tracks.key(ranges.track.values()[at]).0)
    };
    let mut made: HashMap<(Ident, Symbol), (Option<i64>, Option<i64>)> = HashMap::new();
    let of = |collectives: &crate::schema::Collectives, at: usize| {
        Some((process(collectives.row.values()[at])?, collectives.process_group.get(at)?))
    };
    for &at in told {
        let name = collectives.name.get(at).map(|name| symbols.text(name));
        if let Some(key) = of(collectives, at)
            && (name.is_some_and(|name| name.starts_with(INITIALISES))
                || collectives.group_size.get(at).is_some())
        {
            made.insert(key, (collectives.group_size.get(at), collectives.rank.get(at)));
        }
    }
    let mut sizes: Vec<Option<i64>> = collectives.group_size.iter().collect();
    let mut own: Vec<Option<i64>> = collectives.rank.iter().collect();
    let mut from: Vec<Option<i64>> = collectives.source_rank.iter().collect();
    let mut to: Vec<Option<i64>> = collectives.destination_rank.iter().collect();
    for &at in told {
        if let Some(&(size, rank)) = of(collectives, at).and_then(|key| made.get(&key)) {
            (sizes[at], own[at]) = (sizes[at].or(size), own[at].or(rank));
        }
        // The reader leaves the peer where it is of a call that sends.
        let name = collectives.name.get(at);
        if name.is_some() && name == functions.recv {
            (from[at], to[at]) = (to[at], own[at]);
        } else if name.is_some() && name == functions.send {
            from[at] = own[at];
        }
    }
    collectives.group_size = sizes.into_iter().collect();
    collectives.rank = own.into_iter().collect();
    collectives.source_rank = from.into_iter().collect();
    collectives.destination_rank = to.into_iter().collect();
}

/// The calls of each group, by the `row` of the range that ends it.
fn groups(tables: &Tables, symbols: &SymbolTable, told: &[usize]) -> HashMap<u32, Vec<usize>> {
    let ranges = &tables.ranges;
    let (start, end) = (symbols.find(GROUP_START), symbols.find(GROUP_END));
    if end.is_none() {
        return HashMap::new();
    }
    let calls: HashMap<u32, usize> = told
        .iter()
        .filter(|&&at| tables.collectives.bytes.get(at).is_some())
        .map(|&at| (tables.collectives.row.values()[at], at))
        .collect();
    let mut events: Vec<(u32, i64, usize)> = (0..ranges.len())
        .filter(|&at| {
            let name = ranges.name.get(at);
            name.is_some() && (name == start || name == end) || calls.contains_key(&ranges.row.values()[at])
        })
        .map(|at| (ranges.track.values()[at], ranges.start_ns.values()[at], at))
        .collect();
    events.sort_unstable();
    let mut found = HashMap::new();
    let (mut thread, mut depth, mut open) = (None, 0_usize, Vec::new());
    for (track, _, at) in events {
        if thread != Some(track) {
            (thread, depth) = (Some(track), 0);
            open.clear();
        }
        let (name, row) = (ranges.name.get(at), ranges.row.values()[at]);
        if name == start && name.is_some() {
            depth += 1;
        } else if name == end {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                found.insert(row, std::mem::take(&mut open));
            }
        } else if depth > 0 {
            open.extend(calls.get(&row));
        }
    }
    found
}

/// The communicating kernels that each call launched, in order of time, by the range around their launch.
fn kernels_by_call(tables: &Tables) -> Vec<(u32, Vec<usize>)> {
    let gpu_ops = &tables.gpu_ops;
    let mut by_range: HashMap<u32, Vec<usize>> = HashMap::new();
    for (at, range) in gpu_ops.range_row.iter().enumerate() {
        if let Some(range) = range
            && gpu_ops.is_communication.get(at) == Some(true)
        {
            by_range.entry(range).or_default().push(at);
        }
    }
    let mut found: Vec<(u32, Vec<usize>)> = by_range.into_iter().collect();
    found.sort_unstable_by_key(|&(range, _)| range);
    for (_, kernels) in &mut found {
        kernels.sort_by_key(|&at| (gpu_ops.start_ns.values()[at], at));
    }
    found
}

/// The calls that the innermost range of NCCL around a launch stands for.
fn calls_around(
    tables: &Tables,
    range: u32,
    calls: &HashMap<u32, usize>,
    groups: &HashMap<u32, Vec<usize>>,
) -> Vec<usize> {
    let ranges = &tables.ranges;
    let mut next = Some(range);
    for _ in 0..MOST_AROUND {
        let Some(row) = next else { break };
        if let Some(&at) = calls.get(&row) {
            return vec![at];
        }
        if let Some(group) = groups.get(&row) {
            return group.clone();
        }
        let at = ranges.row.values().binary_search(&row).ok();
        next = at.and_then(|at| ranges.parent_row.get(at));
    }
    Vec::new()
}

/// What is known of each kernel: one after another if there are as many calls, else what all calls have in common.
fn described(
    tables: &Tables,
    calls: &[usize],
    kernels: &[usize],
    functions: &Functions,
) -> Vec<CollectiveRow> {
    let row = |kernel: usize| tables.gpu_ops.row.values()[kernel];
    if calls.is_empty() {
        return Vec::new();
    }
    if calls.len() == kernels.len() {
        let pairs = calls.iter().zip(kernels);
        return pairs.map(|(&call, &kernel)| common(tables, &[call], row(kernel), functions)).collect();
    }
    let all = |&kernel: &usize| {
        let of_all = common(tables, calls, row(kernel), functions);
        // Which of several kernels moved how much is not known.
        CollectiveRow { bytes: of_all.bytes.filter(|_| kernels.len() == 1), ..of_all }
    };
    kernels.iter().map(all).collect()
}

/// What several calls have in common, and the bytes that they move together.
fn common(tables: &Tables, calls: &[usize], row: u32, functions: &Functions) -> CollectiveRow {
    fn same<T: PartialEq>(mut values: impl Iterator<Item = Option<T>>) -> Option<T> {
        let first = values.next()??;
        values.all(|value| value.as_ref() == Some(&first)).then_some(first)
    }
    let table = &tables.collectives;
    let at = || calls.iter().copied();
    let is_named = |call: usize, name: Option<Symbol>| name.is_some() && table.name.get(call) == name;
    let sent: Vec<usize> = at().filter(|&call| is_named(call, functions.send)).collect();
    let is_transfer = at().all(|call| is_named(call, functions.send) || is_named(call, functions.recv));
    let name = same(at().map(|call| table.name.get(call)));
    // A kernel of transfers in both directions is told by what it sends.
    let moved: &[usize] = if is_transfer && !sent.is_empty() { &sent } else { calls };
    let sum = |sum: Option<i64>, &call: &usize| sum?.checked_add(table.bytes.get(call)?);
    CollectiveRow {
        row,
        name,
        bytes: moved.iter().fold(Some(0), sum).filter(|_| name.is_some() || is_transfer),
        group_size: same(at().map(|call| table.group_size.get(call))),
        process_group: same(at().map(|call| table.process_group.get(call))),
        rank: same(at().map(|call| table.rank.get(call))),
        source_rank: same(moved.iter().map(|&call| table.source_rank.get(call))),
        destination_rank: same(moved.iter().map(|&call| table.destination_rank.get(call))),
        root_rank: same(at().map(|call| table.root_rank.get(call))),
        reduction: same(at().map(|call| table.reduction.get(call))),
        ..Default::default()
    }
}
