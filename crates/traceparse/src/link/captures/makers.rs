//! What made the nodes of graphs, where the recorder tells their creation with the id that replayed work names:
//! Nsight Systems does with `--cuda-graph-trace=node`.

use crate::link::NONE;
use crate::link::names::{Class, Names};
use crate::link::order::{Extents, TrackOrder, innermost_containers};
use crate::schema::{Column, Table, Tables};
use crate::tracks::TrackTable;

/// What made a node: a call, and what lies around it, by index. The recorder may tell the creation of nodes apart
/// from calls, with the id that work names which replays the node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Maker {
    pub(super) track: u32,
    pub(super) at: i64,
    pub(super) node_id: Option<u64>,
    pub(super) launch: Option<u32>,
    pub(super) op: Option<u32>,
    /// `row` in `ranges`.
    pub(super) range_row: Option<u32>,
}

/// What made each node that was created and not cloned, in order of time.
pub(super) fn of_node_events(tables: &Tables, names: &Names, tracks: &TrackTable) -> Vec<Maker> {
    let Tables { spans, launches, ops, ranges, .. } = tables;
    if spans.graph_node_id.is_all_null() {
        return Vec::new();
    }
    let is_created = |span: u32| {
        let (at, original) = (spans.graph_node_id.get(span as usize), &spans.original_graph_node_id);
        at.is_some() && original.get(span as usize).is_none()
    };
    let extents = Extents::new(&spans.start_ns, &spans.dur_ns);
    let created = TrackOrder::new(spans.track.values(), tracks.len(), extents, is_created);
    let starts = spans.start_ns.values();
    let around = |track: &Column<u32>, start: &Column<i64>, dur: &Column<i64>, keep: &dyn Fn(u32) -> bool| {
        let extents = Extents::new(start, dur);
        let order = TrackOrder::new(track.values(), tracks.len(), extents, keep);
        let instant = |span: u32| (starts[span as usize], starts[span as usize]);
        innermost_containers(&order, extents, |_| true, &created, instant, spans.len())
    };
    let calls = around(&launches.track, &launches.start_ns, &launches.dur_ns, &|_| true);
    let operators = around(&ops.track, &ops.start_ns, &ops.dur_ns, &|op| {
        !names.is(&ops.category, op, Class::ANNOTATION_CATEGORY) && !names.is(&ops.name, op, Class::STEP)
    });
    let is_of_thread = |range: u32| {
        ranges.dur_ns.get(range as usize).is_some() && ranges.end_tid.get(range as usize).is_none()
    };
    let enclosing = around(&ranges.track, &ranges.start_ns, &ranges.dur_ns, &is_of_thread);
    let known = |index: u32| (index != NONE).then_some(index);
    let maker = |&span: &u32| {
        let at = span as usize;
        Maker {
            track: spans.track.values()[at],
            at: spans.start_ns.values()[at],
            node_id: spans.graph_node_id.get(at),
            launch: known(calls[at]),
            op: known(operators[at]),
            range_row: ranges.row.get(enclosing[at] as usize),
        }
    };
    let mut makers: Vec<Maker> = created.indices().iter().map(maker).collect();
    makers.sort_by_key(|maker| (maker.at, maker.track, maker.node_id));
    makers
}
