//! Finds which events of two sequences correspond.
//!
//! Longest common subsequences are looked for with tokens that say much first, then, in the gaps that are
//! left, with tokens that say less. Memory is linear, and so is time, whatever the sequences hold.

use std::ops::Range;

/// Differences after which a way that got far is taken instead of the best one.
const MOST_DIFFERENCES: usize = 2048;
/// The same once the effort is spent: from there on, time is linear with a small factor.
const FEW_DIFFERENCES: usize = 128;
/// Diagonals that are looked at for the best way.
const EFFORT: usize = 1 << 25;

/// Two events that correspond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Match {
    /// Position in the first sequence.
    pub a: u32,
    /// Position in the second sequence.
    pub b: u32,
    /// Index of the kind of tokens by which they were found; their number if only by their place.
    pub level: u8,
}

/// The events that correspond, in order; neither position ever falls.
///
/// Each of `levels` has a token for every event of both sequences, those that say most first. What is left
/// in a gap that is equally long on both sides corresponds by its place.
pub fn align(levels: &[(&[u32], &[u32])]) -> Vec<Match> {
    let mut matches: Vec<Match> = Vec::new();
    let lengths = levels.first().map_or((0, 0), |(a, b)| (a.len() as u32, b.len() as u32));
    for (level, &(a, b)) in (0..).zip(levels) {
        let mut found = Vec::new();
        for (left, right) in gaps(&matches, lengths) {
            common_subsequence(part(a, &left), part(b, &right), &mut |x, y| {
                found.push(Match { a: left.start + x as u32, b: right.start + y as u32, level });
            });
        }
        matches.append(&mut found);
        matches.sort_unstable();
    }
    let mut placed = Vec::new();
    for (a, b) in gaps(&matches, lengths) {
        if a.len() == b.len() {
            placed.extend(a.zip(b).map(|(a, b)| Match { a, b, level: levels.len() as u8 }));
        }
    }
    matches.append(&mut placed);
    matches.sort_unstable();
    matches
}

type Gap = (Range<u32>, Range<u32>);

/// What lies between the matches, where both sides have something.
fn gaps(matches: &[Match], (a, b): (u32, u32)) -> Vec<Gap> {
    let starts = std::iter::once((0, 0)).chain(matches.iter().map(|m| (m.a + 1, m.b + 1)));
    let ends = matches.iter().map(|m| (m.a, m.b)).chain([(a, b)]);
    let between = starts.zip(ends).map(|(start, end)| (start.0..end.0, start.1..end.1));
    between.filter(|(a, b)| !a.is_empty() && !b.is_empty()).collect()
}

fn part<'t>(tokens: &'t [u32], range: &Range<u32>) -> &'t [u32] {
    tokens.get(range.start as usize..range.end as usize).unwrap_or_default()
}

/// A run of matches that a way through both sequences contains: from one point to another.
struct Snake {
    from: (usize, usize),
    to: (usize, usize),
}

/// Calls `add` with the pairs of a common subsequence of `a` and `b`, in any order, found by Myers'
/// algorithm (1986) in linear memory.
///
/// It is a longest one unless `a` and `b` differ in thousands of places.
fn common_subsequence(a: &[u32], b: &[u32], add: &mut impl FnMut(usize, usize)) {
    let mut ways = Ways::new(a.len() + b.len());
    let mut waiting = vec![((0, a.len()), (0, b.len()))];
    while let Some(((mut a0, mut a1), (mut b0, mut b1))) = waiting.pop() {
        while a0 < a1 && b0 < b1 && a.get(a0) == b.get(b0) {
            add(a0, b0);
            (a0, b0) = (a0 + 1, b0 + 1);
        }
        while a0 < a1 && b0 < b1 && a.get(a1 - 1) == b.get(b1 - 1) {
            (a1, b1) = (a1 - 1, b1 - 1);
            add(a1, b1);
        }
        let (Some(left), Some(right)) = (a.get(a0..a1), b.get(b0..b1)) else { continue };
        if left.is_empty() || right.is_empty() {
            continue;
        }
        let Snake { from, to } = ways.middle(left, right);
        (from.0..to.0).zip(from.1..to.1).for_each(|(x, y)| add(a0 + x, b0 + y));
        waiting.push(((a0, a0 + from.0), (b0, b0 + from.1)));
        waiting.push(((a0 + to.0, a1), (b0 + to.1, b1)));
    }
}

/// How far ways from both ends reach on each diagonal.
struct Ways {
    forward: Vec<i64>,
    backward: Vec<i64>,
    effort: usize,
}

impl Ways {
    fn new(lengths: usize) -> Self {
        let diagonals = 2 * (lengths / 2 + 2).min(MOST_DIFFERENCES + 2) + 1;
        Self { forward: vec![0; diagonals], backward: vec![0; diagonals], effort: EFFORT }
    }

    /// A run of matches in the middle of a shortest way from one end to the other. Neither side is empty,
    /// and their first and last tokens differ, so both parts around it are smaller.
    fn middle(&mut self, a: &[u32], b: &[u32]) -> Snake {
        let (n, m) = (a.len() as i64, b.len() as i64);
        let delta = n - m;
        let limit = if self.effort > 0 { MOST_DIFFERENCES } else { FEW_DIFFERENCES };
        let half = (a.len() + b.len()).div_ceil(2).min(limit);
        let center = (self.forward.len() / 2) as i64;
        for ways in [&mut self.forward, &mut self.backward] {
            ways.iter_mut()
                .skip((center as usize).saturating_sub(half + 1))
                .take(2 * half + 3)
                .for_each(|way| *way = 0);
        }
        let half = half as i64;
        let mut furthest = Snake { from: (0, 0), to: (0, 0) };
        for d in 0..=half {
            self.effort = self.effort.saturating_sub(2 * d as usize + 2);
            for k in (-d..=d).step_by(2) {
                let (x0, x) = advance(&mut self.forward, center, k, d, n, m, |x, y| a.get(x) == b.get(y));
                if x0 < 0 {
                    continue;
                }
                let snake =
                    Snake { from: (x0 as usize, (x0 - k) as usize), to: (x as usize, (x - k) as usize) };
                let other = delta - k;
                if delta % 2 != 0 && other.abs() < d && x + reached(&self.backward, center, other) >= n {
                    return snake;
                }
                if snake.to.0 + snake.to.1 > furthest.to.0 + furthest.to.1 {
                    furthest = snake;
                }
            }
            for k in (-d..=d).step_by(2) {
                let mirrored = |x: usize, y: usize| a.get(a.len() - 1 - x) == b.get(b.len() - 1 - y);
                let (x0, x) = advance(&mut self.backward, center, k, d, n, m, mirrored);
                if x0 < 0 {
                    continue;
                }
                let other = delta - k;
                if delta % 2 == 0 && other.abs() <= d && x + reached(&self.forward, center, other) >= n {
                    return Snake {
                        from: ((n - x) as usize, (m - (x - k)) as usize),
                        to: ((n - x0) as usize, (m - (x0 - k)) as usize),
                    };
                }
            }
        }
        furthest
    }
}

fn reached(ways: &[i64], center: i64, k: i64) -> i64 {
    ways.get((center + k) as usize).copied().unwrap_or(0)
}

/// Takes the way on diagonal `k` one difference further: where its matches begin, and where they end.
///
/// The beginning is -1 on a diagonal that lies outside.
fn advance(
    ways: &mut [i64],
    center: i64,
    k: i64,
    d: i64,
    n: i64,
    m: i64,
    same: impl Fn(usize, usize) -> bool,
) -> (i64, i64) {
    let (below, above) = (reached(ways, center, k - 1), reached(ways, center, k + 1));
    let start = match d {
        0 => 0,
        _ if k == -d || (k != d && below < above) => above,
        _ => below + 1,
    };
    let mut x = start;
    if x > n || x - k > m || x - k < 0 {
        // Kept at the edge, from where neighbours go on.
        if let Some(way) = ways.get_mut((center + k) as usize) {
            *way = start;
        }
        return (-1, -1);
    }
    while x < n && x - k < m && same(x as usize, (x - k) as usize) {
        x += 1;
    }
    if let Some(way) = ways.get_mut((center + k) as usize) {
        *way = x;
    }
    (start, x)
}
