//! Collectives and transfers that the host runs itself, as gloo does.
//!
//! `c10d::allreduce_` hands the work to a thread of the backend, which records it as `gloo:all_reduce`; transfers and
//! older recorders begin it in the call. The call tells peers, and the order in which work was handed over.

use hashbrown::{HashMap, HashSet};
use serde_json::Value;

use super::backward::{learn, learned};
use super::communication;
use super::names::{Class, Names};
use super::order::Extents;
use crate::schema::{CollectiveRow, Ops, ProcessGroups, Symbol, SymbolTable, Table};
use crate::trace::Trace;
use crate::tracks::{Ident, TrackTable};

const CALL_PREFIX: &str = "c10d::";

/// What calls run, by the beginning of their names without underscores. Gloo scatters reduced values by an
/// all-reduce.
const CALLS: [(&str, &[&str]); 12] = [
    ("allreduce", &["all_reduce", "sparse_all_reduce"]),
    ("allgather", &["all_gather"]),
    ("reducescatter", &["reduce_scatter", "all_reduce"]),
    ("alltoall", &["all_to_all"]),
    ("broadcast", &["broadcast"]),
    ("barrier", &["barrier"]),
    ("monitoredbarrier", &["monitored_barrier"]),
    ("gather", &["gather"]),
    ("scatter", &["scatter"]),
    ("send", &["send"]),
    ("recv", &["recv"]),
    ("reduce", &["reduce"]),
];

/// Calls whose input is a list of lists of tensors, of which no sizes are recorded.
const LISTS_OF_LISTS: [&str; 2] = ["c10d::scatter_", "c10d::reduce_scatter_"];

/// Beginnings of the names of what calls enclose that a device communicates for.
const DEVICE_OPS: [&str; 4] = ["nccl:", "record_param_comms", "xccl:", "hccl:"];

/// Maximum number of calls of one kind that wait for a thread of the backend and are compared with work.
const MOST_WAITING: usize = 256;

/// What work does: the part of its name after that of the library.
type Kind<'a> = &'a str;

/// Adds a row for each collective and transfer that the host runs, unless the recorder described it.
pub(super) fn describe(trace: &mut Trace, names: &Names) {
    let Trace { meta, tables, symbols, tracks, .. } = trace;
    let is_host = symbols.classify(|text| communication::HOST_OPS.iter().any(|own| text.starts_with(own)));
    if !is_host.contains(&true) {
        return;
    }
    let distributed = meta.properties.get("distributedInfo");
    let recorded = distributed.and_then(|info| info.get("rank")).and_then(Value::as_i64);
    let own_rank = meta.rank.map(i64::from).or(recorded);
    let (op, texts) = (symbols.intern("op"), &*symbols);
    let described: HashSet<u32> = (0..tables.collectives.len())
        .filter(|&at| tables.collectives.source.get(at) == Some(op))
        .map(|at| tables.collectives.row.values()[at])
        .collect();
    let is_open = |&at: &u32| {
        let name = tables.ops.name.get(at as usize);
        name.is_some_and(|name| is_host[name.index()])
            && !described.contains(&tables.ops.row.values()[at as usize])
    };
    let works: Vec<u32> = (0..tables.ops.len() as u32).filter(is_open).collect();
    if works.is_empty() {
        return;
    }
    let host = Host { ops: &tables.ops, texts, tracks, sizes: Sizes::new(&tables.ops, texts, names) };
    let calls = host.calls_of(&works);
    let groups = Groups::new(&tables.process_groups, texts);
    let rows: Vec<(CollectiveRow, Option<String>)> = host
        .rows(&works, &calls, &groups, own_rank)
        .map(|(row, dtype)| (CollectiveRow { source: op, ..row }, dtype))
        .collect();
    for (row, dtype) in rows {
        let dtype = dtype.map(|dtype| symbols.intern(&dtype));
        tables.collectives.push(CollectiveRow { dtype, ..row });
    }
}

/// The operators of a trace, with what their texts say.
struct Host<'a> {
    ops: &'a Ops,
    texts: &'a SymbolTable,
    tracks: &'a TrackTable,
    sizes: Sizes,
}

impl<'a> Host<'a> {
    fn name(&self, op: u32) -> &'a str {
        self.ops.name.get(op as usize).map_or("", |name| self.texts.text(name))
    }

    fn kind(&self, work: u32) -> Kind<'a> {
        self.name(work).split_once(':').map_or("", |(_, kind)| kind)
    }

    fn track(&self, op: u32) -> u32 {
        self.ops.track.values()[op as usize]
    }

    fn process(&self, op: u32) -> Ident {
        self.tracks.key(self.track(op)).0
    }

    /// The call that each of `works` was handed over by: the one on its thread that it begins in, else the last one
    /// before that runs its kind, has an argument of its size and has no work yet, from the last work to the first.
    /// So a call or work that was not recorded does not move the others.
    fn calls_of(&self, works: &[u32]) -> Vec<Option<u32>> {
        let extents = Extents::new(&self.ops.start_ns, &self.ops.dur_ns);
        let mut calls = self.calls();
        calls.sort_by_key(|&(call, _)| (self.track(call), extents.start(call)));
        let around = |work: u32| {
            let place = (self.track(work), extents.start(work));
            let until = calls.partition_point(|&(call, _)| (self.track(call), extents.start(call)) <= place);
            let &(call, kinds) = calls.get(until.checked_sub(1)?)?;
            let contains = self.track(call) == place.0 && extents.end(call) >= place.1;
            (contains && kinds.contains(&self.kind(work))).then_some(call)
        };
        let mut found: Vec<Option<u32>> = works.iter().map(|&work| around(work)).collect();
        let mut used: HashSet<u32> = found.iter().flatten().copied().collect();
        calls.sort_by_key(|&(call, _)| extents.start(call));
        let mut waiting: HashMap<(Ident, Kind<'_>), Vec<u32>> = HashMap::new();
        for (call, kinds) in calls.into_iter().filter(|(call, _)| !used.contains(call)) {
            for kind in kinds {
                waiting.entry((self.process(call), kind)).or_default().push(call);
            }
        }
        let mut open: Vec<usize> = (0..works.len()).filter(|&at| found[at].is_none()).collect();
        open.sort_by_key(|&at| std::cmp::Reverse(extents.start(works[at])));
        for at in open {
            let work = works[at];
            let Some(calls) = waiting.get_mut(&(self.process(work), self.kind(work))) else { continue };
            while calls.last().is_some_and(|&call| extents.start(call) > extents.start(work)) {
                calls.pop();
            }
            let first = calls.len().saturating_sub(MOST_WAITING);
            let fits = |call: &u32| !used.contains(call) && self.fits(work, *call);
            if let Some(place) = calls[first..].iter().rposition(fits) {
                let call = calls.remove(first + place);
                used.insert(call);
                found[at] = Some(call);
            }
        }
        found
    }

    /// The calls that hand work over to the host, with the kinds of work; none that a device communicates for.
    fn calls(&self) -> Vec<(u32, &'static [Kind<'static>])> {
        let parents = self.ops.parent_row.iter().enumerate();
        let of_device: HashSet<u32> = parents
            .filter(|&(op, _)| DEVICE_OPS.iter().any(|own| self.name(op as u32).starts_with(own)))
            .filter_map(|(_, parent)| parent)
            .collect();
        let is_of_host = |&op: &u32| !of_device.contains(&self.ops.row.values()[op as usize]);
        let ops = (0..self.ops.len() as u32).filter(is_of_host);
        ops.filter_map(|op| Some((op, kinds_of_call(self.name(op))?))).collect()
    }

    /// Whether a call has an argument of the size of `work`, as far as sizes are recorded.
    fn fits(&self, work: u32, call: u32) -> bool {
        let (size, arguments) = (self.sizes.total(self.ops, work), self.sizes.of(self.ops, call));
        let is_recorded = !arguments.is_empty() && !LISTS_OF_LISTS.contains(&self.name(call));
        size.is_none_or(|size| !is_recorded || arguments.contains(&size))
    }

    /// The row of each of `works`, and its element type.
    fn rows(
        &self,
        works: &[u32],
        calls: &[Option<u32>],
        groups: &Groups,
        own_rank: Option<i64>,
    ) -> impl Iterator<Item = (CollectiveRow, Option<String>)> {
        // A thread works for one group.
        let mut sizes = HashMap::new();
        for (&work, call) in works.iter().zip(calls) {
            if let Some(size) = call.and_then(|call| self.group_size(call)) {
                learn(&mut sizes, self.track(work), size);
            }
        }
        works.iter().zip(calls).map(move |(&work, &call)| {
            let told = call.and_then(|call| self.group_size(call));
            let size = told.or_else(|| learned(&sizes, self.track(work))).map(i64::from);
            let library = self.name(work).split(':').next().unwrap_or_default();
            let group = groups.only(library, size);
            let member =
                |rank: i64| group.and_then(|group| group.ranks.get(usize::try_from(rank).ok()?).copied());
            let argument = |at: usize| self.number(call?, at);
            let kind = self.kind(work);
            let peer = || argument(2).and_then(member);
            let (source_rank, destination_rank) = match kind {
                "send" => (own_rank, peer()),
                "recv" => (peer(), own_rank),
                _ => (None, None),
            };
            let in_elements = self.sizes.total(self.ops, work);
            let group_size = group.and_then(|group| group.size).or(size);
            let row = CollectiveRow {
                row: self.ops.row.values()[work as usize],
                name: self.ops.name.get(work as usize),
                in_elements,
                out_elements: in_elements
                    .zip(group_size)
                    .filter(|_| kind == "all_gather")
                    .and_then(|(sent, size)| sent.checked_mul(size)),
                group_size,
                process_group: group.and_then(|group| group.name),
                process_group_description: group.and_then(|group| group.description),
                process_group_ranks: group.and_then(|group| group.ranks_text),
                rank: group.and_then(|group| {
                    let own = own_rank?;
                    group.ranks.iter().position(|&rank| rank == own).map(|place| place as i64)
                }),
                source_rank,
                destination_rank,
                root_rank: match kind {
                    "broadcast" => argument(2),
                    "reduce" | "gather" | "scatter" => argument(3),
                    _ => None,
                },
                call_row: call.map(|call| self.ops.row.values()[call as usize]),
                ..Default::default()
            };
            (row, self.dtype(work))
        })
    }

    /// Number of ranks that a call with an output of its own gathers from or scatters to.
    fn group_size(&self, call: u32) -> Option<u32> {
        let &[output, input, ..] = self.sizes.of(self.ops, call) else { return None };
        let (large, small) = match self.name(call) {
            "c10d::_allgather_base_" => (output, input),
            "c10d::_reduce_scatter_base_" => (input, output),
            _ => return None,
        };
        (small > 0 && large % small == 0).then(|| u32::try_from(large / small).ok())?
    }

    /// An argument of a call that is a number.
    fn number(&self, call: u32, at: usize) -> Option<i64> {
        let text = self.texts.text(self.ops.concrete_inputs.get(call as usize)?);
        let values: Vec<Value> = serde_json::from_str(text).ok()?;
        values.get(at)?.as_str()?.parse().ok()
    }

    fn dtype(&self, work: u32) -> Option<String> {
        let text = self.texts.text(self.ops.input_types.get(work as usize)?);
        let types: Vec<Value> = serde_json::from_str(text).ok()?;
        types.first()?.as_str().map(str::to_owned)
    }
}

/// The kinds of work that a call hands over; nothing for what is no such call.
fn kinds_of_call(name: &str) -> Option<&'static [Kind<'static>]> {
    let call: String = name.strip_prefix(CALL_PREFIX)?.chars().filter(|&c| c != '_').collect();
    CALLS.iter().find(|(start, _)| call.starts_with(start)).map(|&(_, kinds)| kinds)
}

/// Numbers of elements of the arguments of operators that communicate, by the text of their shapes.
struct Sizes(HashMap<Symbol, Vec<i64>>);

impl Sizes {
    fn new(ops: &Ops, texts: &SymbolTable, names: &Names) -> Self {
        let mut found = HashMap::new();
        let communicates = |&op: &u32| names.is(&ops.name, op, Class::COMMUNICATION_OP);
        for op in (0..ops.len() as u32).filter(communicates) {
            if let Some(dims) = ops.input_dims.get(op as usize) {
                found.entry(dims).or_insert_with(|| sizes(texts.text(dims)));
            }
        }
        Self(found)
    }

    fn of(&self, ops: &Ops, op: u32) -> &[i64] {
        ops.input_dims.get(op as usize).and_then(|dims| self.0.get(&dims)).map_or(&[], Vec::as_slice)
    }

    /// Elements of all arguments; nothing where none is recorded.
    fn total(&self, ops: &Ops, op: u32) -> Option<i64> {
        let sizes = self.of(ops, op);
        let sum = |sum: i64, &size: &i64| sum.checked_add(size);
        (!sizes.is_empty()).then(|| sizes.iter().try_fold(0, sum))?
    }
}

/// Elements of each argument, of lists of tensors those of all, from shapes as JSON.
fn sizes(dims: &str) -> Vec<i64> {
    let arguments: Vec<Value> = serde_json::from_str(dims).unwrap_or_default();
    arguments.iter().filter_map(elements).collect()
}

fn elements(shape: &Value) -> Option<i64> {
    let parts = shape.as_array()?;
    if !parts.is_empty() && parts.iter().all(Value::is_array) {
        return parts.iter().try_fold(0_i64, |sum, part| sum.checked_add(elements(part)?));
    }
    parts.iter().try_fold(1_i64, |product, length| product.checked_mul(length.as_i64()?))
}

/// The process groups of a rank.
struct Groups<'a>(Vec<Group<'a>>);

struct Group<'a> {
    name: Option<Symbol>,
    description: Option<Symbol>,
    ranks_text: Option<Symbol>,
    ranks: Vec<i64>,
    size: Option<i64>,
    backend: Option<&'a str>,
}

impl<'a> Groups<'a> {
    fn new(groups: &ProcessGroups, texts: &'a SymbolTable) -> Self {
        let group = |at: usize| Group {
            name: groups.name.get(at),
            description: groups.description.get(at),
            ranks_text: groups.ranks.get(at),
            ranks: groups.ranks.get(at).map(|ranks| ranks_in(texts.text(ranks))).unwrap_or_default(),
            size: groups.size.get(at),
            backend: groups.backend.get(at).map(|backend| texts.text(backend)),
        };
        Self((0..groups.len()).map(group).collect())
    }

    /// The only group of a library that has `size` ranks, where that is known.
    fn only(&self, library: &str, size: Option<i64>) -> Option<&Group<'a>> {
        let fits = |group: &&Group<'_>| {
            group.backend.is_none_or(|backend| backend.contains(library))
                && size.is_none_or(|size| group.size.is_none_or(|own| own == size))
        };
        let mut fitting = self.0.iter().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    }
}

/// The ranks in a list as text; none if the recorder cut it.
fn ranks_in(text: &str) -> Vec<i64> {
    serde_json::from_str(text).unwrap_or_default()
}
