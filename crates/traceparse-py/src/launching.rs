//! What launching costs.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array};
use framekernels::numbering::{Described, NOWHERE, Ranks, ranked};
use pyo3::prelude::*;

use crate::answer::answer;
use crate::frame::{Frame, Numbers};
use crate::table::{ArrowTable, table};

/// The quantiles that are told, and how they are called.
const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")];

/// Stands for a time that is not known.
const UNKNOWN: i64 = i64::MIN;

/// What the works of each `group` and the calls that launched them come to.
///
/// Works have `group`, `launch`, the position of a call in `launches`, or null, for those that do not count,
/// `start_ns` and `dur_ns`; calls have `start_ns` and `dur_ns`. Gives `works`; of `cpu_dur_ns`, `gpu_dur_ns` and
/// `launch_delay_ns` each `_sum`, `_p50`, `_p90`, `_p99` and `_max`; `short`, `slow_calls` and `late`, how many
/// works are launched by a longer call that is not slow, by one longer than `slow_ns`, and more than `late_ns`
/// after it.
#[pyfunction]
pub(crate) fn describe_launches(
    py: Python<'_>,
    works: Frame,
    launches: Frame,
    count: u32,
    slow_ns: i64,
    late_ns: i64,
) -> PyResult<ArrowTable> {
    answer(py, || {
        let calls = works.links("launch", NOWHERE)?;
        let (starts, call_starts) = (works.numbers("start_ns")?, launches.numbers("start_ns")?);
        let (lengths, call_lengths) = (works.maybe_numbers("dur_ns")?, launches.maybe_numbers("dur_ns")?);
        let pairs = Pairs {
            launches: &calls,
            starts: &starts,
            lengths: lengths.view(),
            call_starts: &call_starts,
            call_lengths: call_lengths.view(),
        };
        let mut groups = works.links("group", NOWHERE)?;
        if calls.contains(&NOWHERE) {
            let known = groups.iter().zip(calls.iter());
            let known = known.map(|(&group, &call)| if call == NOWHERE { NOWHERE } else { group });
            groups = known.collect();
        }
        let mut flags = vec![[0_i64; 3]; count as usize];
        // Calls lie elsewhere: each is looked at once.
        let mut taken = [Vec::with_capacity(groups.len()), Vec::with_capacity(groups.len())];
        for (row, &group) in groups.iter().enumerate() {
            let (call, delay) = (pairs.call(row), pairs.delay(row));
            taken[0].push(call.unwrap_or(UNKNOWN));
            taken[1].push(delay.unwrap_or(UNKNOWN));
            let Some([short, slow, late]) = flags.get_mut(group as usize) else { continue };
            let is_slow = call.is_some_and(|call| call > slow_ns);
            let is_short = call.zip(pairs.lengths.get(row)).is_some_and(|(call, work)| work < call);
            *short += i64::from(is_short && !is_slow);
            *slow += i64::from(is_slow);
            *late += i64::from(delay.is_some_and(|delay| delay > late_ns));
        }
        let shares = QUANTILES.map(|quantile| quantile.0);
        let known = |of: &Vec<i64>| {
            let known = of.iter().map(|&value| Some(value).filter(|&value| value != UNKNOWN));
            ranked(&groups, known, count, &shares)
        };
        let [calls, delays] = taken;
        let found = known(&calls);
        let mut columns = vec![("works".to_owned(), whole(found.iter().map(|group| Some(group.rows))))];
        add(&mut columns, "cpu_dur_ns", &found);
        let works = (0..groups.len()).map(|row| pairs.lengths.get(row));
        add(&mut columns, "gpu_dur_ns", &ranked(&groups, works, count, &shares));
        add(&mut columns, "launch_delay_ns", &known(&delays));
        for (at, name) in ["short", "slow_calls", "late"].into_iter().enumerate() {
            columns.push((name.to_owned(), whole(flags.iter().map(|flags| flags.get(at).copied()))));
        }
        table(columns.iter().map(|(name, array)| (name.as_str(), Arc::clone(array))).collect())
    })
}

/// Works and the calls that launched them.
struct Pairs<'a> {
    launches: &'a [u32],
    starts: &'a [i64],
    lengths: Numbers<'a>,
    call_starts: &'a [i64],
    call_lengths: Numbers<'a>,
}

impl Pairs<'_> {
    #[inline]
    fn launch(&self, row: usize) -> usize {
        self.launches.get(row).copied().unwrap_or(NOWHERE) as usize
    }

    /// How long the call took.
    #[inline]
    fn call(&self, row: usize) -> Option<i64> {
        self.call_lengths.get(self.launch(row))
    }

    /// How long after the call the work started.
    #[inline]
    fn delay(&self, row: usize) -> Option<i64> {
        let call = self.call_starts.get(self.launch(row))?.saturating_add(self.call(row)?);
        Some(self.starts.get(row)?.saturating_sub(call).max(0))
    }
}

/// Adds what was found of the figure called `name`.
fn add(columns: &mut Vec<(String, ArrayRef)>, name: &str, found: &[Described<Ranks>]) {
    columns.push((format!("{name}_sum"), whole(found.iter().map(|group| Some(group.sum)))));
    for (at, (_, quantile)) in QUANTILES.iter().enumerate() {
        let share = |figures: &Ranks| figures.quantiles.get(at).copied();
        let shares = found.iter().map(|group| group.figures.as_ref().and_then(share));
        columns.push((format!("{name}_{quantile}"), Arc::new(shares.collect::<Float64Array>())));
    }
    let most = found.iter().map(|group| group.figures.as_ref().map(|figures| figures.max));
    columns.push((format!("{name}_max"), whole(most)));
}

fn whole(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}
