//! The captured node that each id of replayed work stands for, where the recorder tells the creation of nodes and of
//! their clones. What was replayed is then no question of names and order.

use hashbrown::HashMap;

use super::graphs::Graph;
use crate::schema::Tables;
use crate::tracks::{Ident, TrackTable};

/// More clones of clones than any program makes.
const MOST_CLONES: usize = 64;

/// Where a node is from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// Number of a graph, and position of its node.
    Created(u32, u32),
    /// Id of the node that it is a clone of.
    Cloned(u64),
}

/// The captured node that each id stands for.
#[derive(Default)]
pub(super) struct NodeIds {
    /// By process and id, in order of time.
    origins: HashMap<(Ident, u64), Vec<(i64, Origin)>>,
}

impl NodeIds {
    /// The ids of a trace that captured `graphs`.
    pub(super) fn new(graphs: &[Graph], tables: &Tables, tracks: &TrackTable) -> Self {
        let spans = &tables.spans;
        let mut found = Self::default();
        let mut add = |track: u32, id: u64, at: i64, origin: Origin| {
            found.origins.entry((tracks.key(track).0, id)).or_default().push((at, origin));
        };
        for (graph, number) in graphs.iter().zip(0..) {
            for (maker, node) in graph.makers.iter().zip(0..) {
                if let Some(id) = maker.node_id {
                    add(maker.track, id, maker.at, Origin::Created(number, node));
                }
            }
        }
        if !spans.original_graph_node_id.is_all_null() {
            let tracks = spans.track.values().iter().zip(spans.start_ns.values());
            let ids = spans.graph_node_id.iter().zip(spans.original_graph_node_id.iter());
            for ((&track, &at), (id, original)) in tracks.zip(ids) {
                if let (Some(id), Some(original)) = (id, original) {
                    add(track, id, at, Origin::Cloned(original));
                }
            }
        }
        found.origins.values_mut().for_each(|origins| origins.sort_by_key(|&(at, _)| at));
        found
    }

    pub(super) fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// Graph and position of the node that had this id in a process when work was launched at `before`.
    pub(super) fn find(&self, process: Ident, mut id: u64, mut before: i64) -> Option<(u32, u32)> {
        for _ in 0..MOST_CLONES {
            let origins = self.origins.get(&(process, id))?;
            let last = origins.partition_point(|&(at, _)| at <= before).checked_sub(1)?;
            match origins[last] {
                (_, Origin::Created(graph, node)) => return Some((graph, node)),
                (at, Origin::Cloned(original)) => (id, before) = (original, at),
            }
        }
        None
    }
}
