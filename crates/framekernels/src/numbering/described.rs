//! Describes the numbers of each group of rows.

use arrow_array::RecordBatch;

use crate::frame::{Frame, Result, column, table};

/// The numbers of a group, described.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Rows of the group.
    pub rows: i64,
    /// The sum of its numbers; 0 without any.
    pub sum: i64,
    /// The rest, where it has a number at all.
    pub figures: Option<Figures>,
}

/// What some numbers come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub min: i64,
    /// The largest.
    pub max: i64,
    /// The standard deviation of a sample, which one number has not.
    pub std: Option<f64>,
    /// The quantiles that were asked for, each interpolated between two numbers.
    pub quantiles: Vec<f64>,
}

/// Describes the numbers of groups `0..count`, row by row in `groups`: rows of no such group do not count.
#[must_use]
pub fn described(
    groups: &[u32],
    numbers: impl Iterator<Item = Option<i64>> + Clone,
    count: u32,
    quantiles: &[f64],
) -> Vec<Described> {
    let mut totals = vec![(0_i64, 0_i64); count as usize];
    // Where the numbers of each group begin.
    let mut next = vec![0_usize; count as usize + 1];
    for (&group, number) in groups.iter().zip(numbers.clone()) {
        let Some((rows, sum)) = totals.get_mut(group as usize) else { continue };
        *rows += 1;
        if let Some(number) = number {
            *sum = sum.wrapping_add(number);
            next[group as usize + 1] += 1;
        }
    }
    for group in 1..next.len() {
        next[group] += next[group - 1];
    }
    let mut gathered = vec![0_i64; next.last().copied().unwrap_or_default()];
    for (&group, number) in groups.iter().zip(numbers) {
        if let (Some(number), true) = (number, group < count) {
            let place = &mut next[group as usize];
            gathered[*place] = number;
            *place += 1;
        }
    }
    let mut from = 0;
    let found = totals.iter().zip(&next).map(|(&(rows, sum), &until)| {
        let figures = figures(&mut gathered[from..until], quantiles);
        from = until;
        Described { rows, sum, figures }
    });
    found.collect()
}

fn figures(numbers: &mut [i64], quantiles: &[f64]) -> Option<Figures> {
    let (&min, &max) = (numbers.iter().min()?, numbers.iter().max()?);
    let count = numbers.len() as f64;
    let sum: i128 = numbers.iter().map(|&number| i128::from(number)).sum();
    let mean = sum as f64 / count;
    let quantiles = ranks(numbers, quantiles);
    Some(Figures { mean, min, max, std: deviation(numbers, sum), quantiles })
}

fn ranks(numbers: &mut [i64], quantiles: &[f64]) -> Vec<f64> {
    let mut sorted = 0;
    quantiles.iter().map(|&share| quantile(numbers, &mut sorted, share)).collect()
}

/// The standard deviation of a sample.
fn deviation(numbers: &[i64], sum: i128) -> Option<f64> {
    let count = numbers.len() as i128;
    if count < 2 {
        return None;
    }
    // Whole numbers do not lose what floats would where all are large and alike.
    let middle = sum / count;
    let off = sum - middle * count;
    // A mean of such numbers is one of them.
    let middle = i64::try_from(middle).ok()?;
    let square = |&number: &i64| u128::from(number.abs_diff(middle)) * u128::from(number.abs_diff(middle));
    let squares = numbers.iter().map(square).fold(0_u128, u128::saturating_add);
    let spread = squares as f64 - (off as f64) * (off as f64) / count as f64;
    Some((spread.max(0.0) / (count - 1) as f64).sqrt())
}

/// A quantile of some numbers, which it brings into another order: what comes before `sorted` is not larger
/// than what comes after.
fn quantile(numbers: &mut [i64], sorted: &mut usize, share: f64) -> f64 {
    let place = numbers.len().saturating_sub(1) as f64 * share.clamp(0.0, 1.0);
    let (whole, part) = (place.floor() as usize, place - place.floor());
    let from = if whole < *sorted { 0 } else { *sorted };
    *sorted = whole;
    let (_, &mut low, above) = numbers[from..].select_nth_unstable(whole - from);
    let high = if part > 0.0 { above.iter().min().copied() } else { None };
    high.map_or(low as f64, |high| low as f64 + (high as f64 - low as f64) * part)
}

/// Describes the numbers of each of `count` groups: `rows`, `sum`, `mean`, `min`, `max`, `std` and `q0` ..., the
/// quantiles.
///
/// The frame has the columns `group`, null for rows that do not count, and `value`.
pub fn describe_by_group(frame: &Frame, count: u32, quantiles: &[f64]) -> Result<RecordBatch> {
    let (groups, values) = (frame.u32_array("group")?, frame.nullable_i64("value")?);
    let found = described(&groups, values.iter(), count, quantiles);
    let names: Vec<String> = (0..quantiles.len()).map(|at| format!("q{at}")).collect();
    let figures = || found.iter().map(|group| group.figures.as_ref());
    let mut columns = vec![
        ("rows", column(found.iter().map(|group| group.rows))),
        ("sum", column(found.iter().map(|group| group.sum))),
        ("mean", column(figures().map(|known| known.map(|known| known.mean)))),
        ("min", column(figures().map(|known| known.map(|known| known.min)))),
        ("max", column(figures().map(|known| known.map(|known| known.max)))),
        ("std", column(figures().map(|known| known.and_then(|known| known.std)))),
    ];
    for (at, name) in names.iter().enumerate() {
        let quantile = |known: &Figures| known.quantiles.get(at).copied();
        columns.push((name, column(figures().map(|known| known.and_then(quantile)))));
    }
    table(columns)
}

#[cfg(test)]
mod tests {
    use super::described;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_described_by_their_group(
            rows in proptest::collection::vec((0_u32..4, proptest::option::of(-9_i64..9)), 0..30)
        ) {
            let groups: Vec<u32> = rows.iter().map(|row| row.0).collect();
            let found = described(&groups, rows.iter().map(|row| row.1), 3, &[0.0, 0.5, 0.9, 0.2]);
            for (group, found) in (0..3).zip(found) {
                let own = || rows.iter().filter(move |row| row.0 == group);
                let mut numbers: Vec<i64> = own().filter_map(|row| row.1).collect();
                numbers.sort_unstable();
                prop_assert_eq!((found.rows, found.sum), (own().count() as i64, numbers.iter().sum()));
                prop_assert_eq!(found.figures.is_none(), numbers.is_empty());
                let Some(figures) = found.figures else { continue };
                let count = numbers.len() as f64;
                let mean = found.sum as f64 / count;
                let squares: f64 = numbers.iter().map(|&n| (n as f64 - mean).powi(2)).sum();
                let std = (numbers.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
                let at = |share: f64| {
                    let place = (count - 1.0) * share;
                    let (low, high) = (numbers[place.floor() as usize], numbers[place.ceil() as usize]);
                    low as f64 + (high - low) as f64 * place.fract()
                };
                prop_assert!((figures.mean - mean).abs() < 1e-12);
                prop_assert_eq!((figures.min, figures.max), (numbers[0], numbers[numbers.len() - 1]));
                prop_assert_eq!(figures.std.is_some(), std.is_some());
                prop_assert!((figures.std.unwrap_or(0.0) - std.unwrap_or(0.0)).abs() < 1e-9);
                for (found, share) in figures.quantiles.iter().zip([0.0, 0.5, 0.9, 0.2]) {
                    prop_assert!((found - at(share)).abs() < 1e-12);
                }
            }
        }
    }
}
