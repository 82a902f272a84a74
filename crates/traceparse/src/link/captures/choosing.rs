//! Which captured graph each launch replayed: the one that fits, of its batch size and at its place.

use std::collections::BTreeSet;
use std::rc::Rc;

use hashbrown::HashMap;

use super::fitting::{Fit, Pattern, Work, fit_in_part, fit_whole};
use super::graphs::Graph;
use super::replays::Replays;
use crate::link::names::Replay;
use crate::schema::Symbol;

/// What is known of a launch.
#[derive(Debug, Clone)]
pub(super) enum Choice {
    /// The graph that it replayed.
    One(Fit),
    /// Several graphs that it may have replayed.
    Several,
    /// No graph fits.
    None,
}

/// Ways to fit, each to a graph of its own.
type Fits = Rc<Vec<Fit>>;

/// What the launches of `replays` replayed, in their order.
pub(super) fn choose(replays: &Replays, graphs: &[Graph], patterns: &[Pattern]) -> Vec<Choice> {
    let contents = contents(graphs);
    let mut known: HashMap<(u32, u32), Fits> = HashMap::new();
    let fits: Vec<Fits> = replays
        .replays
        .iter()
        .map(|replay| {
            let find = || {
                let sizes = replays.sizes.get(replay.sizes as usize).map_or(&[][..], Vec::as_slice);
                let work = &replays.works[replay.kind as usize];
                Rc::new(find_fits(work, sizes, graphs, patterns, &contents))
            };
            Rc::clone(known.entry((replay.kind, replay.sizes)).or_insert_with(find))
        })
        .collect();
    let mut choices: Vec<Choice> = fits.iter().map(|fits| by_content(fits, &contents)).collect();
    let families = Families::new(graphs);
    let mut begin = 0;
    while begin < fits.len() {
        let end = families.end_of_run(replays, &fits, begin);
        if choices[begin..end].iter().any(|choice| matches!(choice, Choice::Several)) {
            families.place(&fits[begin..end], &contents, &mut choices[begin..end]);
        }
        begin = end;
    }
    choices
}

/// The only one, or the first of several that say the same.
fn by_content(fits: &[Fit], contents: &[u32]) -> Choice {
    let Some(first) = fits.first() else { return Choice::None };
    let is_same = |fit: &Fit| contents.get(fit.graph as usize) == contents.get(first.graph as usize);
    if fits.iter().all(is_same) { Choice::One(first.clone()) } else { Choice::Several }
}

/// The ways to fit work to the graphs of its batch size: whole, else the best in part.
fn find_fits(
    work: &Work,
    sizes: &[i64],
    graphs: &[Graph],
    patterns: &[Pattern],
    contents: &[u32],
) -> Vec<Fit> {
    let (of_size, is_padded) = of_size(sizes, graphs);
    let mut fits: Vec<Fit> =
        of_size.iter().filter_map(|&graph| fit_whole(work, &patterns[graph as usize], graph)).collect();
    if fits.is_empty() {
        fits =
            of_size.iter().filter_map(|&graph| fit_in_part(work, &patterns[graph as usize], graph)).collect();
        fits.sort_by_key(|fit| (fit.edits, fit.graph));
        if let Some(best) = fits.first().map(|fit| fit.edits) {
            // Another graph that fits nearly as well may be the one.
            fits.retain(|fit| fit.edits <= 2 * best + 1);
            let content = contents.get(fits[0].graph as usize);
            fits.retain(|fit| fit.edits == best || contents.get(fit.graph as usize) != content);
        }
    }
    if is_padded {
        fits.iter_mut().for_each(|fit| fit.how = Replay::Inferred);
    }
    fits
}

/// The graphs that may have one of the batch `sizes`, and whether these are of the next larger size.
///
/// Engines pad a batch to the next size that they captured. That is known only where a smaller one was
/// captured, too: else the right one may be missing.
fn of_size(sizes: &[i64], graphs: &[Graph]) -> (Vec<u32>, bool) {
    let all = || (0_u32..).zip(graphs);
    let Some(&largest) = sizes.iter().max() else {
        return (all().map(|(number, _)| number).collect(), false);
    };
    let size = |graph: &Graph| graph.row.batch_size;
    let of = |wanted: &dyn Fn(i64) -> bool| -> Vec<u32> {
        let may_be = all().filter(|(_, graph)| size(graph).is_none_or(wanted));
        may_be.map(|(number, _)| number).collect()
    };
    let is_known = graphs.iter().filter_map(size).any(|size| sizes.contains(&size));
    let next = graphs.iter().filter_map(size).filter(|&size| size > largest).min();
    let has_smaller = graphs.iter().filter_map(size).any(|size| size < largest);
    match next {
        Some(next) if !is_known && has_smaller => (of(&|size| size == next), true),
        _ => (of(&|size| sizes.contains(&size)), false),
    }
}

/// A number for each graph: equal for graphs whose nodes say the same of their work.
fn contents(graphs: &[Graph]) -> Vec<u32> {
    let mut classes: HashMap<Vec<Option<u32>>, u32> = HashMap::new();
    let mut number = |key: Vec<Option<u32>>| {
        let next = classes.len() as u32;
        *classes.entry(key).or_insert(next)
    };
    let text = |symbol: Option<Symbol>| symbol.map(|symbol| symbol.index() as u32);
    let size = |size: Option<[i32; 3]>, axis: usize| size.map(|size| size[axis].cast_unsigned());
    let mut of_graph = |graph: &Graph| {
        let mut of_ops: Vec<u32> = Vec::with_capacity(graph.ops.len());
        for op in &graph.ops {
            let parent = op.parent_row.and_then(|parent| of_ops.get(parent as usize).copied());
            let texts = [
                op.name,
                op.input_dims,
                op.input_types,
                op.input_strides,
                op.concrete_inputs,
                op.module_path,
                op.call_stack,
            ];
            of_ops.push(number(texts.map(text).into_iter().chain([parent]).collect()));
        }
        let mut of_nodes = Vec::with_capacity(graph.nodes.len() + 1);
        for node in &graph.nodes {
            let op = node.captured_op_row.and_then(|op| of_ops.get(op as usize).copied());
            let texts = [node.kind, node.name, node.module_path, node.call_stack].map(text);
            let sizes = [node.grid, node.block]
                .into_iter()
                .flat_map(|sizes| (0..3).map(move |axis| size(sizes, axis)));
            of_nodes.push(Some(number(texts.into_iter().chain([op]).chain(sizes).collect())));
        }
        of_nodes.push(None);
        number(of_nodes)
    };
    graphs.iter().map(&mut of_graph).collect()
}

/// Graphs that were captured one behind the other for one batch size: the pieces of a model, replayed in turn.
struct Families {
    /// The family of each graph.
    of: Vec<u32>,
    members: Vec<Vec<u32>>,
}

impl Families {
    fn new(graphs: &[Graph]) -> Self {
        let mut numbers: HashMap<(Option<Symbol>, Option<Symbol>), u32> = HashMap::new();
        let mut found = Self { of: Vec::new(), members: Vec::new() };
        for (graph, number) in graphs.iter().zip(0_u32..) {
            let next = numbers.len() as u32;
            let family = *numbers.entry((graph.row.source, graph.row.name)).or_insert(next);
            found.of.push(family);
            found.members.resize(numbers.len(), Vec::new());
            found.members[family as usize].push(number);
        }
        found
    }

    fn of_fits(&self, fits: &[Fit]) -> BTreeSet<u32> {
        fits.iter().filter_map(|fit| self.of.get(fit.graph as usize).copied()).collect()
    }

    /// The end of the launches of a thread from `begin` on that may all be of one family.
    fn end_of_run(&self, replays: &Replays, fits: &[Fits], begin: usize) -> usize {
        let mut common = self.of_fits(&fits[begin]);
        let track = |at: usize| replays.replays.get(at).map(|replay| replay.track);
        let mut end = begin + 1;
        while end < fits.len() && track(end) == track(begin) {
            let next = self.of_fits(&fits[end]);
            let mut both = common.intersection(&next).copied().peekable();
            if both.peek().is_none() {
                break;
            }
            common = both.collect();
            end += 1;
        }
        end
    }

    /// Chooses for a run of launches by their places, if these are known: where a family's graphs are replayed
    /// in turn, and fit from one beginning only.
    fn place(&self, fits: &[Fits], contents: &[u32], choices: &mut [Choice]) {
        let mut found: Option<(u32, usize, Vec<&Fit>)> = None;
        let families = fits.first().map(|fits| self.of_fits(fits)).unwrap_or_default();
        for &family in &families {
            let members = &self.members[family as usize];
            for first in 0..members.len() {
                let Some(way) = in_turn(fits, |at| members[(first + at) % members.len()]) else { continue };
                let content = |fit: &&Fit| contents.get(fit.graph as usize).copied();
                match &found {
                    Some((.., other)) if !other.iter().map(content).eq(way.iter().map(content)) => return,
                    Some(_) => {}
                    None => found = Some((family, first, way)),
                }
            }
        }
        let Some((family, first, way)) = found else { return };
        let count = self.members[family as usize].len();
        let is_of_family = |at: usize| self.of_fits(&fits[at]).len() == 1;
        let mut begin = 0;
        while begin < way.len() {
            // A turn is of one batch size, which one of its launches must tell: the turn before may be of another.
            let end = (begin + count - (first + begin) % count).min(way.len());
            if (begin..end).any(is_of_family) {
                for at in begin..end {
                    choices[at] = Choice::One(way[at].clone());
                }
            }
            begin = end;
        }
    }
}

/// The fit of each launch to the graph that `turn` gives for its position; none if one has none.
fn in_turn(fits: &[Fits], turn: impl Fn(usize) -> u32) -> Option<Vec<&Fit>> {
    let launches = fits.iter().enumerate();
    launches.map(|(at, fits)| fits.iter().find(|fit| fit.graph == turn(at))).collect()
}
