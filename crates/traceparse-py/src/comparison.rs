//! Compares two traces.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt8Type, UInt32Type};
use arrow_array::{ArrayRef, Int64Array, UInt8Array, UInt32Array};
use framekernels::comparison::{Claim, Match, NOBODY, align, owners};
use pyo3::prelude::*;

use crate::answer::answer_watched;
use crate::frame::{Frame, Outcome, column};
use crate::table::{ArrowTable, table};

/// Who owns how much of each window, which is `(start, end)` in order: see `framekernels::comparison`.
///
/// Claims have `start_ns`, `end_ns`, `priority` and `id`, none null.
#[pyfunction]
pub(crate) fn divide_windows(
    py: Python<'_>,
    claims: Frame,
    windows: Vec<(i64, i64)>,
) -> PyResult<ArrowTable> {
    answer_watched(py, move || {
        let claims = read_claims(&claims)?;
        let owned = owners(claims, &windows);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("window", Arc::new(owned.iter().map(|o| o.window).collect::<UInt32Array>())),
            (
                "id",
                Arc::new(
                    owned.iter().map(|o| Some(o.id).filter(|&id| id != NOBODY)).collect::<UInt32Array>(),
                ),
            ),
            ("ns", Arc::new(owned.iter().map(|o| o.ns).collect::<Int64Array>())),
        ];
        table(columns)
    })
}

/// Which events of two frames correspond, group by group, as indices of their rows.
///
/// Both have the column `group`, which never falls, and a column of tokens for each of `levels`.
#[pyfunction]
pub(crate) fn align_events(py: Python<'_>, a: Frame, b: Frame, levels: Vec<String>) -> PyResult<ArrowTable> {
    answer_watched(py, move || {
        let (a, b) = (Tokens::read(&a, &levels)?, Tokens::read(&b, &levels)?);
        let mut found: Vec<Match> = Vec::new();
        for (group, left) in a.groups() {
            let right = b.range_of(group);
            let tokens: Vec<_> = (0..levels.len()).map(|l| (a.part(l, &left), b.part(l, &right))).collect();
            found.extend(align(&tokens).into_iter().map(|m| Match {
                a: m.a + left.start as u32,
                b: m.b + right.start as u32,
                ..m
            }));
        }
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("a", Arc::new(found.iter().map(|m| m.a).collect::<UInt32Array>())),
            ("b", Arc::new(found.iter().map(|m| m.b).collect::<UInt32Array>())),
            ("level", Arc::new(found.iter().map(|m| m.level).collect::<UInt8Array>())),
        ];
        table(columns)
    })
}

fn read_claims(frame: &Frame) -> Outcome<Vec<Claim>> {
    let mut claims = Vec::with_capacity(frame.height());
    for batch in frame.parts() {
        let (start, end) = (column::<Int64Type>(batch, "start_ns")?, column::<Int64Type>(batch, "end_ns")?);
        let priority = column::<UInt8Type>(batch, "priority")?;
        let id = column::<UInt32Type>(batch, "id")?;
        claims.extend((0..batch.num_rows()).map(|row| Claim {
            start: start.value(row),
            end: end.value(row),
            priority: priority.value(row),
            id: id.value(row),
        }));
    }
    Ok(claims)
}

/// The tokens of one side.
struct Tokens {
    groups: Vec<u32>,
    levels: Vec<Vec<u32>>,
}

impl Tokens {
    fn read(frame: &Frame, levels: &[String]) -> Outcome<Self> {
        let mut tokens = Self { groups: Vec::new(), levels: vec![Vec::new(); levels.len()] };
        for batch in frame.parts() {
            tokens.groups.extend_from_slice(column::<UInt32Type>(batch, "group")?.values());
            for (name, values) in levels.iter().zip(&mut tokens.levels) {
                values.extend_from_slice(column::<UInt32Type>(batch, name)?.values());
            }
        }
        Ok(tokens)
    }

    /// The groups and where they are.
    fn groups(&self) -> Vec<(u32, Range<usize>)> {
        let mut start = 0;
        let chunks = self.groups.chunk_by(|a, b| a == b).map(|chunk| {
            let range = start..start + chunk.len();
            start = range.end;
            (chunk.first().copied().unwrap_or_default(), range)
        });
        chunks.collect()
    }

    fn range_of(&self, group: u32) -> Range<usize> {
        let start = self.groups.partition_point(|&other| other < group);
        start
            ..start + self.groups.get(start..).map_or(0, |rest| rest.partition_point(|&other| other == group))
    }

    fn part(&self, level: usize, range: &Range<usize>) -> &[u32] {
        self.levels.get(level).and_then(|tokens| tokens.get(range.clone())).unwrap_or_default()
    }
}
