//! Finds which events of two sequences correspond.
//!
//! Longest common subsequences are looked for with tokens that say much first, then, in the gaps that are
//! left, with tokens that say less. Memory is linear, and so is time, whatever the sequences hold.

use std::ops::Range;

use super::myers::common_subsequence;

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
