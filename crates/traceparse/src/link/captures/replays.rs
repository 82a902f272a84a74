//! What the launches of graphs replayed.

use framekernels::interval::IntervalTree;
use hashbrown::HashMap;

use super::fitting::{COPY, MEMSET, NAMED, UNNAMED, Work};
use super::graphs::index;
use super::node_ids::NodeIds;
use crate::link::NONE;
use crate::link::names::{Class, Names};
use crate::link::order::{Extents, group};
use crate::link::serving::step_sizes;
use crate::schema::{Symbol, SymbolTable, Table, Tables};
use crate::tracks::TrackTable;

/// Names of kernels by which ROCm copies, and by which it fills.
const COPY_KERNELS: [&str; 2] = ["__amd_rocclr_copy", "MEMORY_COPY"];
const FILL_KERNELS: [&str; 1] = ["__amd_rocclr_fill"];

/// Tokens of names.
pub(super) struct Tokens {
    copies: Vec<u32>,
    memcpy: Symbol,
    memset: Symbol,
}

impl Tokens {
    pub(super) fn new(symbols: &mut SymbolTable) -> Self {
        let [memcpy, memset] = ["memcpy", "memset"].map(|kind| symbols.intern(kind));
        let begins = |text: &str, names: &[&str]| names.iter().any(|name| text.starts_with(name));
        let copies = symbols.classify(|text| {
            if begins(text, &COPY_KERNELS) {
                COPY
            } else if begins(text, &FILL_KERNELS) {
                MEMSET
            } else {
                UNNAMED
            }
        });
        Self { copies, memcpy, memset }
    }

    /// The token of work of a kind and a name.
    #[inline]
    pub(super) fn of(&self, kind: Option<Symbol>, name: Option<Symbol>) -> u32 {
        if kind == Some(self.memcpy) {
            return COPY;
        }
        if kind == Some(self.memset) {
            return MEMSET;
        }
        let Some(name) = name else { return UNNAMED };
        match self.copies.get(name.index()) {
            Some(&token) if token != UNNAMED => token,
            _ => NAMED.saturating_add(name.index() as u32),
        }
    }
}

/// One launch of a graph.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) track: u32,
    pub(super) start: i64,
    /// Positions of its work in `gpu_ops`, in the order of the graph as far as that is known.
    pub(super) work: Vec<u32>,
    /// Its work, as a number of [`Replays::works`].
    pub(super) kind: u32,
    /// Batch sizes that the annotations around it tell, as a number of [`Replays::sizes`].
    pub(super) sizes: u32,
}

/// The launches of graphs, in order of threads and time, and what is distinct among them.
#[derive(Debug, Default)]
pub(super) struct Replays {
    pub(super) replays: Vec<Replay>,
    pub(super) works: Vec<Work>,
    pub(super) sizes: Vec<Vec<i64>>,
}

/// Positions of replayed work in `gpu_ops`, each with its graph and the position of its node there, if known.
pub(super) type ById = Vec<(u32, Option<(u32, u32)>)>;

impl Replays {
    /// Takes out the launches of whose work an id tells the node. What has no known id in such a launch is no
    /// node that was created in the trace.
    pub(super) fn take_by_id(&mut self, ids: &NodeIds, tables: &Tables, tracks: &TrackTable) -> ById {
        let mut taken = ById::new();
        if ids.is_empty() {
            return taken;
        }
        self.replays.retain(|replay| {
            let process = tracks.key(replay.track).0;
            let node = |at: u32| {
                let id = tables.gpu_ops.graph_node_id.get(at as usize)?;
                ids.find(process, id, replay.start)
            };
            let first = taken.len();
            taken.extend(replay.work.iter().map(|&at| (at, node(at))));
            let is_unknown = taken[first..].iter().all(|(_, node)| node.is_none());
            if is_unknown {
                taken.truncate(first);
            }
            is_unknown
        });
        taken
    }
}

/// The launches of graphs that did work.
pub(super) fn find(
    tables: &Tables,
    names: &Names,
    symbols: &SymbolTable,
    tracks: &TrackTable,
    tokens: &Tokens,
) -> Replays {
    let Tables { launches, gpu_ops, .. } = tables;
    let (begins, work) = work_of_graphs(tables, names);
    let sizes_around = SizesAround::new(tables, names, symbols, tracks);
    let has_ids = !gpu_ops.graph_node_id.is_all_null();
    let mut found = Replays::default();
    let mut works: HashMap<Work, u32> = HashMap::new();
    let mut sizes: HashMap<Vec<i64>, u32> = HashMap::new();
    let starts = gpu_ops.start_ns.values();
    let of_launches = Extents::new(&launches.start_ns, &launches.dur_ns);
    for (launch, bounds) in (0_u32..).zip(begins.windows(2)).filter(|(_, bounds)| bounds[0] < bounds[1]) {
        let mut work = work[bounds[0] as usize..bounds[1] as usize].to_vec();
        let node = |&at: &u32| gpu_ops.graph_node_id.get(at as usize);
        let is_ordered = has_ids && work.iter().all(|at| node(at).is_some());
        work.sort_by_key(|at| (if is_ordered { node(at) } else { None }, starts[*at as usize], *at));
        let distinct = describe(tables, tokens, &work, is_ordered);
        let next = works.len() as u32;
        let kind = *works.entry(distinct).or_insert(next);
        let track = launches.track.values()[launch as usize];
        let known = sizes_around.of(track, of_launches.of(launch));
        let next = sizes.len() as u32;
        let sizes = *sizes.entry(known).or_insert(next);
        found.replays.push(Replay { track, start: of_launches.start(launch), work, kind, sizes });
    }
    found.replays.sort_by_key(|replay| (replay.track, replay.start));
    found.works = in_order(works);
    found.sizes = in_order(sizes);
    found
}

/// Where the work of each launch begins, and the end of the last; and the work.
fn work_of_graphs(tables: &Tables, names: &Names) -> (Vec<u32>, Vec<u32>) {
    let Tables { launches, gpu_ops, .. } = tables;
    let mut last = (NONE, None);
    let mut of_graphs: Vec<(usize, u32)> = Vec::new();
    for (at, row) in (0_u32..).zip(gpu_ops.launch_row.iter()) {
        let Some(row) = row else { continue };
        if last.0 != row {
            let launch = index(&launches.row, row);
            last = (row, launch.filter(|&launch| names.is(&launches.name, launch, Class::GRAPH_LAUNCH)));
        }
        if let Some(launch) = last.1 {
            of_graphs.push((launch as usize, at));
        }
    }
    group(of_graphs.into_iter(), launches.len())
}

fn describe(tables: &Tables, tokens: &Tokens, work: &[u32], is_ordered: bool) -> Work {
    let gpu_ops = &tables.gpu_ops;
    let token = |&at: &u32| tokens.of(gpu_ops.kind.get(at as usize), gpu_ops.name.get(at as usize));
    let mut numbers: HashMap<(Option<i32>, Option<i64>), u32> = HashMap::new();
    let mut stream = |&at: &u32| {
        let next = numbers.len() as u32;
        *numbers.entry((gpu_ops.device.get(at as usize), gpu_ops.stream.get(at as usize))).or_insert(next)
    };
    let streams: Vec<u32> = if is_ordered { Vec::new() } else { work.iter().map(&mut stream).collect() };
    let has_grids = !gpu_ops.grid.is_all_null();
    let grids =
        if has_grids { work.iter().map(|&at| gpu_ops.grid.get(at as usize)).collect() } else { Vec::new() };
    let has_several = streams.iter().any(|&stream| stream > 0);
    Work { tokens: work.iter().map(token).collect(), streams: has_several.then_some(streams), grids }
}

fn in_order<T>(numbers: HashMap<T, u32>) -> Vec<T> {
    let mut numbered: Vec<(T, u32)> = numbers.into_iter().collect();
    numbered.sort_unstable_by_key(|&(_, number)| number);
    numbered.into_iter().map(|(value, _)| value).collect()
}

/// The batch sizes that annotations tell, by thread and time.
struct SizesAround {
    by_track: HashMap<u32, IntervalTree>,
    told: Vec<Vec<i64>>,
}

impl SizesAround {
    fn new(tables: &Tables, names: &Names, symbols: &SymbolTable, tracks: &TrackTable) -> Self {
        let ops = &tables.ops;
        let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
        let mut told = Vec::new();
        let mut intervals: Vec<Vec<(i64, i64, u32)>> = vec![Vec::new(); tracks.len()];
        for op in (0..ops.len() as u32).filter(|&op| names.is_annotation(ops, op)) {
            let sizes = ops.name.get(op as usize).map(|name| step_sizes(symbols.text(name)));
            if let Some(sizes) = sizes.filter(|sizes| !sizes.is_empty()) {
                let (start, end) = extents.of(op);
                intervals[ops.track.values()[op as usize] as usize].push((start, end, told.len() as u32));
                told.push(sizes);
            }
        }
        let known = (0_u32..).zip(intervals).filter(|(_, intervals)| !intervals.is_empty());
        Self {
            by_track: known.map(|(track, intervals)| (track, IntervalTree::new(intervals))).collect(),
            told,
        }
    }

    fn of(&self, track: u32, (start, end): (i64, i64)) -> Vec<i64> {
        let Some(tree) = self.by_track.get(&track) else { return Vec::new() };
        let around = tree.containing(start, end).filter_map(|number| self.told.get(number as usize));
        let mut sizes: Vec<i64> = around.flatten().copied().collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}
