//! Sums of calls, by themselves and with the calls inside.

use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, ScalarBuffer};

use super::{Forest, NONE};
use crate::frame::is_set;
use crate::memory::Curve;

/// A number for each call, worked out when it is asked for.
///
/// Calls that are merged into others have what was [added](Column::add) to them and nothing else.
#[derive(Debug, Clone, Default)]
pub struct Column {
    base: Base,
    added: Vec<Added>,
}

#[derive(Debug, Clone, Default)]
enum Base {
    #[default]
    Nothing,
    Given(ScalarBuffer<i64>),
    OfClass(ScalarBuffer<u32>, Vec<i64>),
    Within(Arc<Curve>, ScalarBuffer<i64>, ScalarBuffer<i64>),
    SubtractChildren(Arc<Column>),
    WithInner(Arc<Column>),
    Changes(Arc<Column>),
}

/// Columns of calls that need no look at other calls.
#[derive(Debug, Clone, Copy)]
enum Known<'a> {
    Given(&'a [i64]),
    OfClass(&'a [u32], &'a [i64]),
}

impl Known<'_> {
    #[inline]
    fn at(self, at: usize) -> Option<i64> {
        match self {
            Self::Given(values) => values.get(at).copied(),
            Self::OfClass(classes, of) => {
                Some(of.get(*classes.get(at)? as usize).copied().unwrap_or_default())
            }
        }
    }
}

/// Values that belong to calls.
#[derive(Debug, Clone)]
struct Added {
    calls: Arc<[u32]>,
    values: Values,
}

/// What is added to calls.
#[derive(Debug, Clone)]
pub enum Values {
    /// A number each.
    Given(ScalarBuffer<i64>),
    /// Minus a number each.
    Less(ScalarBuffer<i64>),
    /// What the class of each has.
    OfClass(ScalarBuffer<u32>, Vec<i64>),
    /// A number each, where its class is marked.
    Marked(ScalarBuffer<i64>, ScalarBuffer<u32>, BooleanBuffer),
}

impl Values {
    #[inline]
    fn each(&self, mut visit: impl FnMut(usize, i64)) {
        match self {
            Self::Given(values) => values.iter().enumerate().for_each(|(at, &value)| visit(at, value)),
            Self::Less(values) => {
                values.iter().enumerate().for_each(|(at, &value)| visit(at, value.wrapping_neg()));
            }
            Self::OfClass(classes, of) => {
                let values = classes.iter().map(|&class| of.get(class as usize).copied().unwrap_or_default());
                values.enumerate().for_each(|(at, value)| visit(at, value));
            }
            Self::Marked(values, classes, marks) => {
                let is_marked = |class: u32| is_set(marks, class as usize);
                let marked = values.iter().zip(classes.iter()).enumerate();
                let marked = marked.filter(|&(_, (_, &class))| is_marked(class));
                marked.for_each(|(at, (&value, _))| visit(at, value));
            }
        }
    }
}

impl Column {
    /// A value for each call.
    #[must_use]
    pub fn given(values: ScalarBuffer<i64>) -> Self {
        Self { base: Base::Given(values), ..Self::default() }
    }

    /// The value of the class of each call; 0 for no class.
    #[must_use]
    pub fn of_class(classes: ScalarBuffer<u32>, values: Vec<i64>) -> Self {
        Self { base: Base::OfClass(classes, values), ..Self::default() }
    }

    /// By how much `curve` changes from the start to the end of each call, both included.
    #[must_use]
    pub fn within(curve: Arc<Curve>, starts: ScalarBuffer<i64>, lengths: ScalarBuffer<i64>) -> Self {
        Self { base: Base::Within(curve, starts, lengths), ..Self::default() }
    }

    /// What `column` is less that of the calls directly inside.
    #[must_use]
    pub fn subtract_children(column: Arc<Self>) -> Self {
        let base = if column.is_empty() { Base::Nothing } else { Base::SubtractChildren(column) };
        Self { base, ..Self::default() }
    }

    /// What `column` is with that of all calls inside.
    #[must_use]
    pub fn with_inner(column: Arc<Self>) -> Self {
        let base = if column.is_empty() { Base::Nothing } else { Base::WithInner(column) };
        Self { base, ..Self::default() }
    }

    /// 1 where `column` is not what it is of the call around, or there is none, and else 0.
    #[must_use]
    pub fn changes(column: Arc<Self>) -> Self {
        Self { base: Base::Changes(column), ..Self::default() }
    }

    /// Adds each of `values` to the call at that place in `calls`, which is [`NONE`] for none.
    pub fn add(&mut self, calls: Arc<[u32]>, values: Values) {
        self.added.push(Added { calls, values });
    }

    /// Whether nothing was ever put or added to a call.
    fn is_empty(&self) -> bool {
        matches!(self.base, Base::Nothing) && self.added.is_empty()
    }

    /// The columns of calls that are not merged, if these need no look at other calls.
    fn known(&self) -> Option<Known<'_>> {
        match &self.base {
            _ if !self.added.is_empty() => None,
            Base::Given(values) => Some(Known::Given(values)),
            Base::OfClass(classes, of) => Some(Known::OfClass(classes, of)),
            _ => None,
        }
    }

    fn each_added(&self, mut add: impl FnMut(usize, i64)) {
        for Added { calls, values } in &self.added {
            values.each(|at, value| {
                if let Some(&call) = calls.get(at).filter(|&&call| call != NONE) {
                    add(call as usize, value);
                }
            });
        }
    }
}

/// Columns of one forest, each worked out in the room that the one before took.
#[derive(Debug)]
pub struct Working<'a> {
    forest: &'a Forest,
    /// The column that `values` are, if they are one.
    holds: Option<Arc<Column>>,
    values: Vec<i64>,
}

impl<'a> Working<'a> {
    /// Room for a column of `forest`.
    #[must_use]
    pub fn new(forest: &'a Forest) -> Self {
        Self { forest, holds: None, values: Vec::new() }
    }

    /// The values of `column`.
    pub fn values(&mut self, column: &Arc<Column>) -> &[i64] {
        if !self.holds.as_ref().is_some_and(|held| Arc::ptr_eq(held, column)) {
            self.work_out(column);
            self.holds = Some(Arc::clone(column));
        }
        &self.values
    }

    /// The values of `column` for the calls at `places`, none of which is merged.
    pub fn values_at(&mut self, column: &Arc<Column>, places: &[u32]) -> Vec<i64> {
        let known = column.known().unwrap_or_else(|| Known::Given(self.values(column)));
        places.iter().map(|&place| known.at(place as usize).unwrap_or_default()).collect()
    }

    /// The calls that are not merged and where `column` is not 0, in order.
    pub fn places_where(&mut self, column: &Arc<Column>) -> Vec<u32> {
        let forest = self.forest;
        if let (Base::Changes(inner), true) = (&column.base, column.added.is_empty())
            && let Some(inner) = inner.known()
        {
            return forest.places(|at| forest.is_change(at, |at| inner.at(at)));
        }
        let known = column.known().unwrap_or_else(|| Known::Given(self.values(column)));
        forest.places(|at| known.at(at).is_some_and(|value| value != 0))
    }

    fn work_out(&mut self, column: &Column) {
        let forest = self.forest;
        match &column.base {
            Base::SubtractChildren(inner) => forest.subtract_children(self.changed(inner)),
            Base::WithInner(inner) => forest.with_inner(self.changed(inner), |_, _| {}),
            Base::Changes(inner) => forest.changes(self.changed(inner)),
            base => {
                self.holds = None;
                self.values.clear();
                match base {
                    Base::Given(given) => self.values.extend_from_slice(given),
                    Base::OfClass(classes, of) => {
                        let of = |&class: &u32| of.get(class as usize).copied().unwrap_or_default();
                        self.values.extend(classes.iter().map(of));
                    }
                    Base::Within(curve, starts, lengths) => {
                        let ends = starts.iter().zip(lengths.iter());
                        let ends = ends.map(|(&start, &length)| (start, start.saturating_add(length)));
                        self.values.extend(curve.changes(ends));
                    }
                    _ => {}
                }
                self.clear_merged();
                self.values.resize(forest.len(), 0);
            }
        }
        column.each_added(|at, value| {
            if let Some(sum) = self.values.get_mut(at) {
                *sum = sum.wrapping_add(value);
            }
        });
    }

    /// The values of `column`, to be changed.
    fn changed(&mut self, column: &Arc<Column>) -> &mut [i64] {
        self.values(column);
        self.holds = None;
        &mut self.values
    }

    fn clear_merged(&mut self) {
        if self.forest.has_merged() {
            let merged = self.values.iter_mut().enumerate().filter(|&(at, _)| self.forest.is_merged(at));
            merged.for_each(|(_, value)| *value = 0);
        }
    }

    /// The sums of `column` over the calls of each class, which are numbers below `count`.
    pub fn class_sums(&mut self, column: &Arc<Column>, classes: &[u32], count: usize) -> Vec<i64> {
        let forest = self.forest;
        let mut sums = vec![0_i64; count];
        let mut add = |at: usize, value: i64| {
            if let Some(sum) = classes.get(at).and_then(|&class| sums.get_mut(class as usize)) {
                *sum = sum.wrapping_add(value);
            }
        };
        match &column.base {
            Base::Nothing => {}
            Base::Given(given) => {
                let own = given.iter().enumerate().filter(|&(at, _)| !forest.is_merged(at));
                own.for_each(|(at, &value)| add(at, value));
            }
            Base::SubtractChildren(inner) => {
                // Merged calls have what was added to them alone.
                let has_added = inner.known().is_none();
                let known = inner.known().unwrap_or_else(|| Known::Given(self.values(inner)));
                let calls = forest.parents().iter().enumerate();
                for (at, &parent) in calls.filter(|&(at, _)| has_added || !forest.is_merged(at)) {
                    let value = known.at(at).unwrap_or_default();
                    add(at, value);
                    add(parent as usize, value.wrapping_neg());
                }
            }
            Base::WithInner(inner) => forest.with_inner(self.changed(inner), &mut add),
            _ => {
                self.values(column).iter().enumerate().for_each(|(at, &value)| add(at, value));
                return sums;
            }
        }
        column.each_added(add);
        sums
    }
}
