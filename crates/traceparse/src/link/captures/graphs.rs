//! The graphs that a trace captured: what the calls between the begin and the end of a capture launched.

use framekernels::interval::IntervalTree;
use hashbrown::HashMap;

use super::makers::{self, Maker};
use super::stacks::{Place, Places};
use crate::link::NONE;
use crate::link::names::{Class, Names};
use crate::link::order::{Extents, TrackOrder};
use crate::link::serving::captured_size;
use crate::schema::{
    CapturedGraphRow, CapturedNodeRow, CapturedOpRow, Column, Symbol, SymbolTable, Table, Tables,
};
use crate::tracks::{Ident, TrackTable};

/// A captured graph. Rows of ops and nodes are positions in its own lists.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) row: CapturedGraphRow,
    pub(super) ops: Vec<CapturedOpRow>,
    pub(super) nodes: Vec<CapturedNodeRow>,
    /// What made each node.
    pub(super) makers: Vec<Maker>,
    /// For each node the kernels that it may be; empty where nothing says.
    pub(super) expected: Vec<Vec<Kernel>>,
}

/// A kernel as it was launched: its name and grid.
pub(super) type Kernel = (Symbol, Option<[i32; 3]>);

impl Graph {
    /// Replaces texts of another trace by those of this one.
    pub(super) fn carry(&mut self, mut text: impl FnMut(Symbol) -> Symbol) {
        let mut change = |symbol: &mut Option<Symbol>| *symbol = symbol.map(&mut text);
        change(&mut self.row.name);
        for op in &mut self.ops {
            let inputs =
                [&mut op.input_dims, &mut op.input_types, &mut op.input_strides, &mut op.concrete_inputs];
            inputs.into_iter().for_each(&mut change);
            let others =
                [&mut op.name, &mut op.phase, &mut op.module, &mut op.module_path, &mut op.call_stack];
            others.into_iter().for_each(&mut change);
        }
        for node in &mut self.nodes {
            [&mut node.kind, &mut node.name, &mut node.module_path, &mut node.call_stack]
                .into_iter()
                .for_each(&mut change);
            // Rows of the other trace.
            (node.launch_row, node.range_row) = (None, None);
        }
        self.expected.iter_mut().flatten().for_each(|(name, _)| *name = text(*name));
    }
}

/// The time from the begin of a capture to its end on a thread.
#[derive(Debug, Clone, Copy)]
struct Span {
    track: u32,
    start: i64,
    end: Option<i64>,
}

/// The graphs that a linked trace captured, in order of their captures.
pub(super) fn find(tables: &Tables, symbols: &mut SymbolTable, tracks: &TrackTable) -> Vec<Graph> {
    let names = Names::new(symbols);
    let launches = &tables.launches;
    let is = |launch: u32, class| names.is(&launches.name, launch, class);
    let created = makers::of_node_events(tables, &names, tracks);
    let marks = |launch: u32| is(launch, Class::CAPTURE_BEGIN.or(Class::CAPTURE_END));
    if created.is_empty() && !(0..launches.len() as u32).any(marks) {
        return Vec::new();
    }
    let extents = Extents::new(&launches.start_ns, &launches.dur_ns);
    let order = TrackOrder::new(launches.track.values(), tracks.len(), extents, |_| true);
    let mut spans = spans(&order, extents, is);
    let makers = if created.is_empty() { calls_that_make_nodes(tables, &order, is) } else { created };
    let mut made: Vec<Vec<Maker>> = spans.iter().map(|_| Vec::new()).collect();
    let capturing = Capturing::new(&spans, tracks);
    let mut built: Vec<Maker> = Vec::new();
    for maker in makers {
        match capturing.at(maker.track, maker.at) {
            Some(span) => made[span].push(maker),
            None => built.push(maker),
        }
    }
    add_built(built, tracks, &mut spans, &mut made);
    let mut builder = Builder::new(tables, symbols, tracks, &names, &made);
    let of_spans = spans.iter().zip(made);
    let mut graphs: Vec<Graph> = of_spans.map(|(span, makers)| builder.graph(*span, makers)).collect();
    graphs.retain(|graph| !graph.nodes.is_empty());
    graphs
}

/// The calls that make a node if a stream is captured: what is captured does no work.
fn calls_that_make_nodes(tables: &Tables, order: &TrackOrder, is: impl Fn(u32, Class) -> bool) -> Vec<Maker> {
    let Tables { launches, ops, .. } = tables;
    let has_work = calls_with_work(tables);
    let makes_node = Class::KERNEL_LAUNCH.or(Class::COPY_CALL).or(Class::MEMSET_CALL);
    let makers = order.indices().iter().filter(|&&launch| {
        is(launch, makes_node) && !is(launch, Class::GRAPH_LAUNCH) && !has_work[launch as usize]
    });
    let op_ids = (0..ops.len()).filter_map(|op| Some((ops.external_id.get(op)?, op as u32))).collect();
    makers
        .map(|&launch| Maker {
            track: launches.track.values()[launch as usize],
            at: launches.start_ns.values()[launch as usize],
            node_id: None,
            launch: Some(launch),
            op: op_of(tables, &op_ids, launch),
            range_row: launches.range_row.get(launch as usize),
        })
        .collect()
}

/// Adds the graphs that a program built without capturing a stream: the upper half of a node's id names its graph.
fn add_built(built: Vec<Maker>, tracks: &TrackTable, spans: &mut Vec<Span>, made: &mut Vec<Vec<Maker>>) {
    let mut known: HashMap<(Ident, u64), usize> = HashMap::new();
    for maker in built {
        let Some(id) = maker.node_id else { continue };
        let at = *known.entry((tracks.key(maker.track).0, id >> 32)).or_insert_with(|| {
            spans.push(Span { track: maker.track, start: maker.at, end: None });
            made.push(Vec::new());
            made.len() - 1
        });
        spans[at].end = Some(maker.at);
        made[at].push(maker);
    }
}

/// The captures of each thread, in order of their begin. One that begins while another is open ends that.
fn spans(order: &TrackOrder, extents: Extents<'_>, is: impl Fn(u32, Class) -> bool) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (track, rows) in order.tracks() {
        let mut open: Option<usize> = None;
        for &launch in rows {
            if is(launch, Class::CAPTURE_BEGIN) {
                open = Some(spans.len());
                spans.push(Span { track, start: extents.start(launch), end: None });
            } else if is(launch, Class::CAPTURE_END)
                && let Some(span) = open.take().and_then(|at| spans.get_mut(at))
            {
                span.end = Some(extents.start(launch));
            }
        }
    }
    // Of a thread, the next capture bounds one whose end was not recorded.
    spans.sort_by_key(|span| (span.start, span.track));
    spans
}

/// For each launch, whether GPU work belongs to it: what is captured does no work.
fn calls_with_work(tables: &Tables) -> Vec<bool> {
    let rows = tables.launches.row.values();
    let mut has_work = vec![false; rows.len()];
    for row in tables.gpu_ops.launch_row.iter().flatten() {
        if let Ok(at) = rows.binary_search(&row) {
            has_work[at] = true;
        }
    }
    has_work
}

/// Which capture a call belongs to.
struct Capturing {
    by_track: HashMap<u32, IntervalTree>,
    by_process: HashMap<Ident, IntervalTree>,
    processes: Vec<Ident>,
    crowded: Vec<Ident>,
}

impl Capturing {
    fn new(spans: &[Span], tracks: &TrackTable) -> Self {
        let process = |track: u32| tracks.key(track).0;
        let mut by_track: HashMap<u32, Vec<(i64, i64, u32)>> = HashMap::new();
        let mut by_process: HashMap<Ident, Vec<(i64, i64, u32)>> = HashMap::new();
        let mut crowded = Vec::new();
        for (number, span) in (0_u32..).zip(spans) {
            let later = spans.get(number as usize + 1..).unwrap_or_default();
            let next = later.iter().find(|other| other.track == span.track).map(|other| other.start);
            let end = span.end.or(next).unwrap_or(i64::MAX);
            by_track.entry(span.track).or_default().push((span.start, end, number));
            let others = by_process.entry(process(span.track)).or_default();
            if others.last().is_some_and(|&(_, other, _)| other > span.start) {
                crowded.push(process(span.track));
            }
            others.push((span.start, end, number));
        }
        let trees = |spans: Vec<(i64, i64, u32)>| IntervalTree::new(spans);
        Self {
            by_track: by_track.into_iter().map(|(track, spans)| (track, trees(spans))).collect(),
            by_process: by_process.into_iter().map(|(process, spans)| (process, trees(spans))).collect(),
            processes: (0..tracks.len() as u32).map(process).collect(),
            crowded,
        }
    }

    /// The capture of the thread at a moment, else the only one of its process: gradients are captured while
    /// a thread of autograd launches them.
    fn at(&self, track: u32, at: i64) -> Option<usize> {
        let own = self.by_track.get(&track).and_then(|tree| tree.innermost_at(at));
        let process = self.processes.get(track as usize)?;
        let found = own.or_else(|| {
            let tree = self.by_process.get(process).filter(|_| !self.crowded.contains(process))?;
            tree.innermost_at(at)
        });
        found.map(|number| number as usize)
    }
}

/// Makes graphs of calls.
struct Builder<'a> {
    tables: &'a Tables,
    names: &'a Names,
    symbols: &'a mut SymbolTable,
    op_order: TrackOrder,
    of_calls: HashMap<u32, Place>,
    of_ops: HashMap<u32, Place>,
    kernel: Symbol,
    copies: [Symbol; 2],
}

impl<'a> Builder<'a> {
    fn new(
        tables: &'a Tables,
        symbols: &'a mut SymbolTable,
        tracks: &'a TrackTable,
        names: &'a Names,
        made: &[Vec<Maker>],
    ) -> Self {
        let Tables { ops, launches, .. } = tables;
        let [kernel, memcpy, memset] = ["kernel", "memcpy", "memset"].map(|kind| symbols.intern(kind));
        let of_launches = Extents::new(&launches.start_ns, &launches.dur_ns);
        let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
        let mut is_made = vec![false; launches.len()];
        made.iter()
            .flatten()
            .filter_map(|maker| maker.launch)
            .for_each(|launch| is_made[launch as usize] = true);
        let mut is_around = vec![false; ops.len()];
        for maker in made.iter().flatten() {
            let mut next = maker.op;
            while let Some(op) = next.filter(|&op| !is_around[op as usize]) {
                is_around[op as usize] = true;
                next = ops.parent_row.get(op as usize).and_then(|row| index(&ops.row, row));
            }
        }
        let mut places = Places::new(tables, tracks.len());
        let of_calls =
            places.of_rows(&launches.track, of_launches, |launch| is_made[launch as usize], symbols);
        let of_ops = places.of_rows(&ops.track, extents, |op| is_around[op as usize], symbols);
        let op_order =
            TrackOrder::new(ops.track.values(), tracks.len(), extents, |op| names.is_annotation(ops, op));
        Self { tables, names, symbols, op_order, of_calls, of_ops, kernel, copies: [memcpy, memset] }
    }

    fn graph(&mut self, span: Span, mut makers: Vec<Maker>) -> Graph {
        let ops = &self.tables.ops;
        makers.sort_by_key(|maker| (maker.at, maker.launch, maker.node_id));
        let annotation = self.annotation(span);
        let name = annotation.and_then(|op| ops.name.get(op as usize));
        let mut graph = Graph {
            row: CapturedGraphRow {
                name,
                batch_size: name.and_then(|name| captured_size(self.symbols.text(name))),
                start_ns: span.start,
                dur_ns: span.end.map(|end| end.saturating_sub(span.start)),
                nodes: makers.len() as u32,
                ..Default::default()
            },
            ..Default::default()
        };
        let placed = self.add_ops(&mut graph, span, &makers);
        let op_row = |maker: &Maker| maker.op.and_then(|op| placed.get(&op).copied());
        graph.nodes = makers.iter().map(|maker| self.node(maker, op_row(maker))).collect();
        graph.makers = makers;
        graph.expected = vec![Vec::new(); graph.nodes.len()];
        graph
    }

    /// The innermost annotation of the thread around the begin of a capture whose name tells a batch size, else
    /// the innermost of all.
    fn annotation(&self, span: Span) -> Option<u32> {
        let ops = &self.tables.ops;
        let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
        let rows = self.op_order.track(span.track);
        let before = rows.partition_point(|&op| extents.start(op) <= span.start);
        let encloses = |op: &&u32| extents.end(**op) >= span.end.unwrap_or(span.start);
        let text = |op: u32| ops.name.get(op as usize).map(|name| self.symbols.text(name));
        let around = || rows[..before].iter().rev().filter(encloses).copied();
        let sized = around().find(|&op| text(op).and_then(captured_size).is_some());
        sized.or_else(|| around().next())
    }

    /// Adds the ops that made nodes, and those around them that began in the capture; gives their positions.
    fn add_ops(&self, graph: &mut Graph, span: Span, makers: &[Maker]) -> HashMap<u32, u32> {
        let ops = &self.tables.ops;
        let extents = Extents::new(&ops.start_ns, &ops.dur_ns);
        let mut found: HashMap<u32, u32> = HashMap::new();
        for maker in makers {
            let mut next = maker.op;
            while let Some(op) = next.filter(|op| extents.start(*op) >= span.start && !found.contains_key(op))
            {
                found.insert(op, NONE);
                next = ops.parent_row.get(op as usize).and_then(|row| index(&ops.row, row));
            }
        }
        let mut sorted: Vec<u32> = found.keys().copied().collect();
        sorted.sort_by_key(|&op| (extents.start(op), std::cmp::Reverse(extents.end(op)), op));
        found.extend(sorted.iter().copied().zip(0_u32..));
        for (position, op) in (0_u32..).zip(sorted) {
            let at = op as usize;
            let place = self.of_ops.get(&op).copied().unwrap_or_default();
            let parent = ops.parent_row.get(at).and_then(|row| index(&ops.row, row));
            let parent_row = parent.and_then(|parent| found.get(&parent).copied());
            let depth_of = |parent: u32| graph.ops.get(parent as usize).map(|op| op.depth + 1);
            graph.ops.push(CapturedOpRow {
                row: position,
                parent_row,
                depth: parent_row.and_then(depth_of).unwrap_or(0),
                name: ops.name.get(at),
                start_ns: extents.start(op),
                dur_ns: ops.dur_ns.get(at),
                input_dims: ops.input_dims.get(at),
                input_types: ops.input_types.get(at),
                input_strides: ops.input_strides.get(at),
                concrete_inputs: ops.concrete_inputs.get(at),
                is_annotation: Some(self.names.is_annotation(ops, op)),
                phase: ops.phase.get(at),
                module: ops.module.get(at),
                module_path: place.module_path,
                call_stack: ops.call_stack.get(at).or(place.call_stack),
                ..Default::default()
            });
        }
        found
    }

    fn node(&self, maker: &Maker, captured_op_row: Option<u32>) -> CapturedNodeRow {
        let calls = &self.tables.launches;
        let node = CapturedNodeRow { captured_op_row, range_row: maker.range_row, ..Default::default() };
        let Some(launch) = maker.launch else { return node };
        let at = launch as usize;
        let place = self.of_calls.get(&launch).copied().unwrap_or_default();
        let [memcpy, memset] = self.copies;
        let is = |class| self.names.is(&calls.name, launch, class);
        CapturedNodeRow {
            launch_row: calls.row.get(at),
            kind: if is(Class::COPY_CALL) {
                Some(memcpy)
            } else if is(Class::MEMSET_CALL) {
                Some(memset)
            } else {
                is(Class::KERNEL_LAUNCH).then_some(self.kernel)
            },
            name: calls.kernel.get(at),
            grid: calls.grid.get(at),
            block: calls.block.get(at),
            shared_memory_bytes: calls.shared_memory_bytes.get(at),
            module_path: place.module_path,
            call_stack: place.call_stack,
            ..node
        }
    }
}

/// The op that made a call; none where the call names one that is not in the file.
fn op_of(tables: &Tables, op_ids: &HashMap<i64, u32>, launch: u32) -> Option<u32> {
    let Tables { ops, launches, .. } = tables;
    let at = launch as usize;
    let op = index(&ops.row, launches.op_row.get(at)?)?;
    let Some(id) = launches.external_id.get(at).filter(|&id| id != 0) else { return Some(op) };
    // Recorders of some years wrote the correlation id there.
    let is_named = ops.external_id.get(op as usize) == Some(id) || op_ids.contains_key(&id);
    (is_named || launches.correlation.get(at) == Some(id)).then_some(op)
}

/// Where the row of a number stands in its table, whose rows ascend.
pub(super) fn index(rows: &Column<u32>, row: u32) -> Option<u32> {
    rows.values().binary_search(&row).ok().map(|at| at as u32)
}
