//! Which node of a captured graph each piece of replayed work is, as far as it is sure.
//!
//! Names are tokens: equal for what may be one node. A node is sure if it is the same in every way to fit the
//! work to the graph that is as good as the best.

use std::rc::Rc;

use hashbrown::HashMap;

use crate::link::NONE;
use crate::link::names::Replay;

/// The token of any copy.
pub(super) const COPY: u32 = 0;
/// The token of any memset.
pub(super) const MEMSET: u32 = 1;
/// The token of a kernel whose name is not recorded.
pub(super) const UNNAMED: u32 = 2;
/// The first token of a kernel with a name.
pub(super) const NAMED: u32 = 3;

/// Of a graph and a launch that differ in more than one piece in so many, neither tells of the other.
const LEAST_ALIKE: usize = 20;
/// Fewer pieces of work are too few to bear a difference.
const LEAST_TO_ALIGN: usize = 8;
/// Cells of the table of alignments: work beyond is matched only if it is equal.
const MOST_CELLS: usize = 1 << 24;
/// What is found of work on several streams tells more of the rest, so many times.
const MOST_ROUNDS: usize = 64;
/// So many nodes that are kernels and copies in one order are no accident, whatever their names.
const LEAST_BY_KIND: usize = 32;
/// Fewer nodes of a capture that was cut off are too few to know the graph by.
const LEAST_OF_CUT: usize = 16;

/// The work of one launch of a graph, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Work {
    pub(super) tokens: Vec<u32>,
    /// The stream of each piece, if there are several and nothing but time orders them.
    pub(super) streams: Option<Vec<u32>>,
    /// The grid of each piece; empty where none is known.
    pub(super) grids: Vec<Option<[i32; 3]>>,
}

/// What is known of the nodes of a graph, in order.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    pub(super) tokens: Vec<u32>,
    /// The tokens that an unnamed node may have, each with its grid; empty where nothing says.
    pub(super) expected: Vec<Vec<(u32, Option<[i32; 3]>)>>,
    pub(super) grids: Vec<Option<[i32; 3]>>,
    /// Whether the end of the capture was recorded.
    pub(super) is_complete: bool,
}

impl Pattern {
    /// The tokens of all nodes, if each has a name or there is one that it can have.
    fn sole_tokens(&self) -> Option<Vec<u32>> {
        let sole = |(&token, expected): (&u32, &Vec<(u32, _)>)| match expected.first() {
            _ if token != UNNAMED => Some(token),
            Some(&(first, _)) => expected.iter().all(|&(other, _)| other == first).then_some(first),
            None => None,
        };
        self.tokens.iter().zip(&self.expected).map(sole).collect()
    }

    /// Whether the grid of a piece of work is none that the node has or may have.
    fn contradicts(&self, work: &Work, at: usize, node: usize) -> bool {
        let Some(grid) = work.grids.get(at).copied().flatten() else { return false };
        if let Some(captured) = self.grids.get(node).copied().flatten() {
            return captured != grid;
        }
        let Some(expected) = self.expected.get(node).filter(|expected| !expected.is_empty()) else {
            return false;
        };
        let is_so = |&(token, of): &(u32, Option<[i32; 3]>)| {
            token == work.tokens[at] && of.is_none_or(|of| of == grid)
        };
        self.tokens[node] == UNNAMED && !expected.iter().any(is_so)
    }
}

/// A way to fit work to a graph.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    pub(super) graph: u32,
    /// The node of each piece of work; [`NONE`] where it is not sure.
    pub(super) nodes: Rc<Vec<u32>>,
    pub(super) how: Replay,
    /// Pieces and nodes without a partner.
    pub(super) edits: usize,
}

/// How `work` fits the graph `number`, piece for piece.
pub(super) fn fit_whole(work: &Work, pattern: &Pattern, number: u32) -> Option<Fit> {
    if !pattern.is_complete || work.tokens.len() != pattern.tokens.len() {
        return None;
    }
    let (nodes, how) = if pattern.tokens.contains(&UNNAMED) {
        let nodes = match &work.streams {
            Some(streams) => interleaved(&work.tokens, streams, &pattern.sole_tokens()?)?,
            None => by_kind(work, pattern)?,
        };
        (nodes, Replay::Inferred)
    } else if let Some(streams) = &work.streams {
        let nodes = interleaved(&work.tokens, streams, &pattern.tokens)?;
        let how = if nodes.contains(&NONE) { Replay::Aligned } else { Replay::Exact };
        (nodes, how)
    } else {
        let is_equal = work.tokens == pattern.tokens;
        (is_equal.then(|| (0..work.tokens.len() as u32).collect())?, Replay::Exact)
    };
    let is_refuted = (0..).zip(&nodes).any(|(at, &node)| pattern.contradicts(work, at, node as usize));
    (!is_refuted).then(|| Fit { graph: number, nodes: Rc::new(nodes), how, edits: 0 })
}

/// How `work` fits the graph `number` although one of them lacks a part.
pub(super) fn fit_in_part(work: &Work, pattern: &Pattern, number: u32) -> Option<Fit> {
    if work.streams.is_some() || pattern.tokens.contains(&UNNAMED) {
        return None;
    }
    let (nodes, edits) = if pattern.is_complete {
        aligned(&work.tokens, &pattern.tokens)?
    } else {
        let (cut, all) = (pattern.tokens.len(), work.tokens.len());
        let begins_so = work.tokens.starts_with(&pattern.tokens) && cut >= LEAST_OF_CUT.max(all / 4);
        (
            begins_so
                .then(|| (0..all as u32).map(|at| if (at as usize) < cut { at } else { NONE }).collect())?,
            0,
        )
    };
    Some(Fit { graph: number, nodes: Rc::new(nodes), how: Replay::Aligned, edits })
}

/// The nodes of work that is as long as a graph whose kernels have no names, where nothing contradicts.
fn by_kind(work: &Work, pattern: &Pattern) -> Option<Vec<u32>> {
    let mut known = 0;
    let pairs = work.tokens.iter().zip(&pattern.tokens).zip(&pattern.expected);
    for ((&token, &node), expected) in pairs {
        let may_be = match node {
            UNNAMED => {
                token >= NAMED && (expected.is_empty() || expected.iter().any(|&(other, _)| other == token))
            }
            node => token == node,
        };
        if !may_be {
            return None;
        }
        known += usize::from(node != UNNAMED || !expected.is_empty());
    }
    let count = work.tokens.len();
    (2 * known >= count || count >= LEAST_BY_KIND).then(|| (0..count as u32).collect())
}

/// The nodes of work on several streams, each of which keeps the order of the capture.
///
/// Which of several equal names on different streams is which node is not known; where all of a name are on
/// one stream it is, and between these a name that has one place.
fn interleaved(work: &[u32], streams: &[u32], graph: &[u32]) -> Option<Vec<u32>> {
    let (mut of_graph, mut of_work) = (graph.to_vec(), work.to_vec());
    of_graph.sort_unstable();
    of_work.sort_unstable();
    if of_graph != of_work {
        return None;
    }
    let mut nodes = vec![NONE; work.len()];
    let mut taken = vec![false; graph.len()];
    let count = streams.iter().max().map_or(0, |&last| last as usize + 1);
    let mut left: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (at, &stream) in streams.iter().enumerate() {
        left[stream as usize].push(at);
    }
    for _ in 0..MOST_ROUNDS {
        let sole = sole_streams(work, streams, &nodes);
        let mut found = 0;
        for own in &left {
            let places = Places { work, graph, taken: &taken, nodes: &nodes, sole: &sole };
            let (first, last) = (places.first(own)?, places.last(own)?);
            for ((&at, first), last) in own.iter().zip(first).zip(last) {
                if nodes[at] == NONE && first == last {
                    nodes[at] = first;
                    taken[first as usize] = true;
                    found += 1;
                }
            }
        }
        if found == 0 {
            break;
        }
    }
    Some(nodes)
}

/// The tokens that all open work of one stream alone has.
fn sole_streams(work: &[u32], streams: &[u32], nodes: &[u32]) -> HashMap<u32, bool> {
    let mut seen: HashMap<u32, (u32, bool)> = HashMap::new();
    for ((&token, &stream), _) in work.iter().zip(streams).zip(nodes).filter(|(_, node)| **node == NONE) {
        let entry = seen.entry(token).or_insert((stream, true));
        entry.1 &= entry.0 == stream;
    }
    seen.into_iter().map(|(token, (_, is_sole))| (token, is_sole)).collect()
}

/// The nodes that the work of one stream can have.
struct Places<'a> {
    work: &'a [u32],
    graph: &'a [u32],
    taken: &'a [bool],
    nodes: &'a [u32],
    sole: &'a HashMap<u32, bool>,
}

impl Places<'_> {
    /// The first node that each piece can have.
    fn first(&self, own: &[usize]) -> Option<Vec<u32>> {
        let sole = self.sole_nodes(own)?;
        let mut next = 0;
        let place = |(&at, sole): (&usize, &u32)| {
            let fixed = if self.nodes[at] == NONE { *sole } else { self.nodes[at] };
            let found = if fixed == NONE {
                (next..self.graph.len()).find(|&node| self.may_be(at, node))?
            } else {
                (fixed as usize >= next).then_some(fixed as usize)?
            };
            next = found + 1;
            Some(found as u32)
        };
        own.iter().zip(&sole).map(place).collect()
    }

    /// The last node that each piece can have.
    fn last(&self, own: &[usize]) -> Option<Vec<u32>> {
        let sole = self.sole_nodes(own)?;
        let mut end = self.graph.len();
        let place = |(&at, sole): (&usize, &u32)| {
            let fixed = if self.nodes[at] == NONE { *sole } else { self.nodes[at] };
            let found = if fixed == NONE {
                (0..end).rev().find(|&node| self.may_be(at, node))?
            } else {
                ((fixed as usize) < end).then_some(fixed as usize)?
            };
            end = found;
            Some(found as u32)
        };
        let mut places: Vec<u32> = own.iter().zip(&sole).rev().map(place).collect::<Option<_>>()?;
        places.reverse();
        Some(places)
    }

    fn may_be(&self, at: usize, node: usize) -> bool {
        !self.taken[node] && self.graph[node] == self.work[at]
    }

    /// The node of each piece whose token no other stream has: the first has the first node, and so on.
    fn sole_nodes(&self, own: &[usize]) -> Option<Vec<u32>> {
        let is_sole = |token: u32| self.sole.get(&token) == Some(&true);
        let mut open: HashMap<u32, std::vec::IntoIter<u32>> = HashMap::new();
        let mut lists: HashMap<u32, Vec<u32>> = HashMap::new();
        for (node, &token) in (0_u32..).zip(self.graph) {
            if !self.taken[node as usize] && is_sole(token) {
                lists.entry(token).or_default().push(node);
            }
        }
        open.extend(lists.into_iter().map(|(token, nodes)| (token, nodes.into_iter())));
        let node = |&at: &usize| {
            let is_open = self.nodes[at] == NONE && is_sole(self.work[at]);
            if is_open { open.get_mut(&self.work[at])?.next() } else { Some(NONE) }
        };
        own.iter().map(node).collect()
    }
}

/// The nodes that pieces of work have in every longest common subsequence, and how much is left over.
fn aligned(work: &[u32], graph: &[u32]) -> Option<(Vec<u32>, usize)> {
    let longer = work.len().max(graph.len());
    if work.len().min(graph.len()) < LEAST_TO_ALIGN {
        return None;
    }
    let most = (longer / LEAST_ALIKE).max(1);
    let band = Band::new(work.len(), graph.len(), most.min(MOST_CELLS / (4 * longer)))?;
    let before = band.lengths(work, graph, false);
    let after = band.lengths(work, graph, true);
    let length = band.at(&before, work.len(), graph.len());
    let edits =
        usize::try_from(longer as i32 * 2 - (work.len().abs_diff(graph.len())) as i32 - 2 * length).ok()?;
    if edits > band.most {
        return None;
    }
    let nodes = (0..work.len()).map(|at| {
        let mut found = NONE;
        for node in band.columns(at) {
            // In some best alignment the piece has no node.
            if band.at(&before, at, node) + band.at(&after, at + 1, node) == length {
                return NONE;
            }
            let pairs = graph.get(node) == Some(&work[at])
                && band.at(&before, at, node) + 1 + band.at(&after, at + 1, node + 1) == length;
            if pairs && found != NONE {
                return NONE;
            }
            found = if pairs { node as u32 } else { found };
        }
        found
    });
    Some((nodes.collect(), edits))
}

/// The part of a table of alignments that ways with few differences lie in.
struct Band {
    rows: usize,
    columns: usize,
    most: usize,
}

impl Band {
    fn new(rows: usize, columns: usize, most: usize) -> Option<Self> {
        (rows.abs_diff(columns) <= most).then_some(Self { rows, columns, most })
    }

    fn columns(&self, row: usize) -> std::ops::RangeInclusive<usize> {
        row.saturating_sub(self.most)..=(row + self.most).min(self.columns)
    }

    fn width(&self) -> usize {
        2 * self.most + 1
    }

    fn place(&self, row: usize, column: usize) -> Option<usize> {
        let offset =
            column.checked_add(self.most)?.checked_sub(row).filter(|&offset| offset < self.width())?;
        (row <= self.rows && column <= self.columns).then_some(row * self.width() + offset)
    }

    /// A length, or less than any outside the band.
    fn at(&self, lengths: &[i32], row: usize, column: usize) -> i32 {
        self.place(row, column).map_or(i32::MIN / 4, |place| lengths[place])
    }

    /// The length of the longest common subsequence of what comes before each pair of places, or `after`.
    fn lengths(&self, a: &[u32], b: &[u32], after: bool) -> Vec<i32> {
        let mut lengths = vec![i32::MIN / 4; (self.rows + 1) * self.width()];
        for step in 0..=self.rows {
            let row = if after { self.rows - step } else { step };
            let columns = self.columns(row);
            let mut fill = |column: usize| {
                let (next_row, next_column, x, y) = if after {
                    (row + 1, column + 1, row, column)
                } else {
                    (row.wrapping_sub(1), column.wrapping_sub(1), row.wrapping_sub(1), column.wrapping_sub(1))
                };
                let is_end =
                    if after { (row, column) == (self.rows, self.columns) } else { row + column == 0 };
                let is_equal = a.get(x).is_some_and(|token| b.get(y) == Some(token));
                let diagonal = self.at(&lengths, next_row, next_column) + i32::from(is_equal);
                let best = diagonal.max(self.at(&lengths, next_row, column)).max(self.at(
                    &lengths,
                    row,
                    next_column,
                ));
                if let Some(place) = self.place(row, column) {
                    lengths[place] = if is_end { 0 } else { best };
                }
            };
            if after {
                columns.rev().for_each(&mut fill);
            } else {
                columns.for_each(&mut fill);
            }
        }
        lengths
    }
}
