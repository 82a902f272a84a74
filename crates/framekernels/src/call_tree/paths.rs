//! Calls that have the same names above them.

use arrow_array::RecordBatch;
use hashbrown::HashMap;

use super::{Forest, NONE};
use crate::frame::{Frame, Result, column, records, table};

/// The ways of names that lead to calls: two calls share a path if they and all around them have the
/// same names.
#[derive(Debug, Default)]
pub struct Paths {
    /// The path of each call.
    pub of: Vec<u32>,
    /// The path around each path, which comes before it.
    pub parents: Vec<u32>,
    /// The last name of each path.
    pub names: Vec<u32>,
}

impl Paths {
    /// The paths of `forest`, whose calls have `names`; a call deeper than `most_levels` has the path of
    /// the call around it.
    #[must_use]
    pub fn new(forest: &Forest, names: &[u32], most_levels: u32) -> Self {
        let mut paths = Self { of: vec![NONE; forest.len()], ..Self::default() };
        let mut depths: Vec<u32> = Vec::new();
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        forest.for_each_outer_first(|at| {
            let around = forest.parents().get(at).and_then(|&parent| paths.of.get(parent as usize));
            let around = around.copied().unwrap_or(NONE);
            let depth = depths.get(around as usize).map_or(0, |depth| depth + 1);
            let name = names.get(at).copied().unwrap_or(NONE);
            let path = if depth < most_levels {
                *known.entry((around, name)).or_insert_with(|| {
                    depths.push(depth);
                    paths.parents.push(around);
                    paths.names.push(name);
                    paths.names.len() as u32 - 1
                })
            } else {
                around
            };
            if let Some(of) = paths.of.get_mut(at) {
                *of = path;
            }
        });
        paths
    }
}

/// The texts of the `wanted` paths: the texts of their names with `;` between, but for empty ones.
///
/// `parents` and `names` are those of [`Paths`].
#[must_use]
pub fn path_texts(
    parents: &[u32],
    names: &[u32],
    texts: &[String],
    wanted: &[u32],
    root_first: bool,
) -> Vec<String> {
    let mut way: Vec<&str> = Vec::new();
    let mut text_of = |&path: &u32| {
        way.clear();
        let mut at = path;
        // A path comes behind the one around it, so this ends.
        while let (Some(&parent), Some(&name)) = (parents.get(at as usize), names.get(at as usize)) {
            way.extend(texts.get(name as usize).map(String::as_str).filter(|text| !text.is_empty()));
            at = if parent < at { parent } else { NONE };
        }
        if root_first {
            way.reverse();
        }
        way.join(";")
    };
    wanted.iter().map(&mut text_of).collect()
}

/// Sums of the calls of one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fold {
    /// The names from the root on, with `;` between; none where it was not asked for.
    pub text: Option<String>,
    /// The sum of the values.
    pub sum: i64,
    /// How many calls there are.
    pub calls: i64,
}

/// Sums of calls by the texts of their paths, `of`, the largest sum first, then in order of the texts,
/// which the first `most` have.
///
/// Calls without a path are left out, and so are those of a path without a text, and texts whose sum is not
/// above 0. The others are as in [`path_texts`].
#[must_use]
pub fn folded(
    parents: &[u32],
    names: &[u32],
    texts: &[String],
    of: &[u32],
    values: &[i64],
    most: usize,
) -> Vec<Fold> {
    // Different names can have the same text, and a name several parts.
    let mut parts = Parts::default();
    let mut part_of: Vec<u32> = Vec::with_capacity(parents.len());
    for (&parent, &name) in parents.iter().zip(names) {
        let around = part_of.get(parent as usize).copied().unwrap_or(NONE);
        let text = texts.get(name as usize).map(String::as_str).filter(|text| !text.is_empty());
        part_of.push(
            text.map_or(around, |text| text.split(';').fold(around, |at, part| parts.inside(at, part))),
        );
    }
    let mut sums = vec![(0_i64, 0_i64); parts.texts.len()];
    for (&path, &value) in of.iter().zip(values) {
        let part = part_of.get(path as usize).copied().unwrap_or(NONE);
        if let Some((sum, calls)) = sums.get_mut(part as usize) {
            *sum = sum.wrapping_add(value);
            *calls += 1;
        }
    }
    let mut found: Vec<(i64, i64, u32)> = (0_u32..)
        .zip(sums)
        .filter(|&(_, (sum, _))| sum > 0)
        .map(|(at, (sum, calls))| (sum, calls, at))
        .collect();
    found.sort_unstable_by_key(|&(sum, _, _)| std::cmp::Reverse(sum));
    for alike in found.chunk_by_mut(|a, b| a.0 == b.0).filter(|alike| alike.len() > 1) {
        alike.sort_by_cached_key(|&(_, _, at)| parts.text(at));
    }
    let text = |place: usize, at: u32| (place < most).then(|| parts.text(at));
    let folds = found.into_iter().enumerate();
    folds.map(|(place, (sum, calls, at))| Fold { text: text(place, at), sum, calls }).collect()
}

/// The parts of texts that begin alike, each behind the one before it.
#[derive(Debug, Default)]
struct Parts<'a> {
    parents: Vec<u32>,
    texts: Vec<&'a str>,
    known: HashMap<(u32, &'a str), u32>,
}

impl<'a> Parts<'a> {
    /// The part of this text behind the one at `around`.
    fn inside(&mut self, around: u32, text: &'a str) -> u32 {
        *self.known.entry((around, text)).or_insert_with(|| {
            self.parents.push(around);
            self.texts.push(text);
            self.texts.len() as u32 - 1
        })
    }

    /// The parts from the first one to that at `at`, with `;` between.
    fn text(&self, mut at: u32) -> String {
        let mut way: Vec<&str> = Vec::new();
        while let (Some(&parent), Some(&text)) = (self.parents.get(at as usize), self.texts.get(at as usize))
        {
            way.push(text);
            at = parent;
        }
        way.reverse();
        way.join(";")
    }
}

/// The texts of the `wanted` paths, `text`, whose names are indices of `texts`; see [`path_texts`].
pub fn texts_of_paths(
    paths: &Frame,
    texts: &[String],
    wanted: &Frame,
    root_first: bool,
) -> Result<RecordBatch> {
    let (parents, names) = (paths.u32_array("parent")?, paths.u32_array("name")?);
    let found = path_texts(&parents, &names, texts, &wanted.u32_array("path")?, root_first);
    table([("text", column(found))])
}

/// Sums calls by the texts of their paths: `stack`, which the first `most` have, `value_ns` and `events`. See
/// [`folded`].
///
/// Columns: of `calls`, `path` and `value_ns` (null is 0).
pub fn fold_paths(paths: &Frame, texts: &[String], calls: &Frame, most: usize) -> Result<RecordBatch> {
    let (parents, names) = (paths.u32_array("parent")?, paths.u32_array("name")?);
    let (of, values) = (calls.u32_array("path")?, calls.i64_array("value_ns")?);
    let folds = folded(&parents, &names, texts, &of, &values, most);
    records!(folds, fold => stack: fold.text.clone(), value_ns: fold.sum, events: fold.calls)
}
