//! The values of one row, whatever types they have.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::stats::{Code, Stats};
use crate::time::{LONGEST_NS, NO_START, TIMES_NS};

/// A row of a table. Cell 0 is the rowid, the others follow the columns of the table's declaration.
pub(crate) struct Cells<'a, 'r> {
    pub(crate) row: &'a Row<'r>,
    pub(crate) table: &'static str,
    pub(crate) rowid: i64,
    /// Number of the row in its run.
    pub(crate) number: u32,
    /// Which cells the table has columns for, a bit each; the others are null throughout.
    pub(crate) present: u64,
    pub(crate) stats: &'a mut Stats,
}

impl<'a> Cells<'a, '_> {
    /// Counts a finding about this row.
    pub(crate) fn note(&mut self, code: Code) {
        self.stats.note_in(code, self.table, Some(self.rowid));
    }

    #[inline]
    pub(crate) fn value(&self, cell: usize) -> ValueRef<'a> {
        // A cell without a column costs no call.
        if self.present & (1 << cell) == 0 {
            return ValueRef::Null;
        }
        self.row.get_ref(cell).unwrap_or(ValueRef::Null)
    }

    /// Whether a row has nothing where the table has a column.
    pub(crate) fn is_null(&self, cell: usize) -> bool {
        self.present & (1 << cell) != 0 && matches!(self.value(cell), ValueRef::Null)
    }

    /// A whole number; null where the cell is null or no number.
    #[inline]
    pub(crate) fn int(&mut self, cell: usize) -> Option<i64> {
        match self.value(cell) {
            ValueRef::Integer(value) => Some(value),
            ValueRef::Null => None,
            other => self.converted(other),
        }
    }

    #[cold]
    fn converted(&mut self, value: ValueRef<'_>) -> Option<i64> {
        self.note(Code::WrongType);
        match value {
            ValueRef::Real(real) => {
                let whole = real as i64;
                (real.fract() == 0.0 && whole as f64 == real && whole != i64::MAX).then_some(whole)
            }
            ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
            _ => None,
        }
    }

    /// A whole number that every row should have.
    #[inline]
    pub(crate) fn usual(&mut self, cell: usize) -> Option<i64> {
        let value = self.int(cell);
        if value.is_none() && self.is_null(cell) {
            self.note(Code::UnexpectedNull);
        }
        value
    }

    /// A whole number that fits 32 bits.
    #[inline]
    pub(crate) fn small(&mut self, cell: usize) -> Option<i32> {
        let value = self.int(cell)?;
        let small = i32::try_from(value).ok();
        if small.is_none() {
            self.note(Code::BadNumber);
        }
        small
    }

    /// Three whole numbers that fit 32 bits.
    #[inline]
    pub(crate) fn triple(&mut self, cells: [usize; 3]) -> Option<[i32; 3]> {
        let [x, y, z] = cells.map(|cell| self.small(cell));
        Some([x?, y?, z?])
    }

    /// A real number.
    pub(crate) fn real(&mut self, cell: usize) -> Option<f64> {
        match self.value(cell) {
            ValueRef::Real(value) => Some(value),
            ValueRef::Integer(value) => Some(value as f64),
            ValueRef::Null => None,
            ValueRef::Text(text) => {
                self.note(Code::WrongType);
                std::str::from_utf8(text).ok()?.trim().parse().ok()
            }
            ValueRef::Blob(_) => {
                self.note(Code::WrongType);
                None
            }
        }
    }

    /// The bytes of a text.
    #[inline]
    pub(crate) fn text(&mut self, cell: usize) -> Option<&'a [u8]> {
        match self.value(cell) {
            ValueRef::Text(text) => Some(text),
            ValueRef::Null => None,
            ValueRef::Blob(bytes) => {
                self.note(Code::WrongType);
                Some(bytes)
            }
            ValueRef::Integer(_) | ValueRef::Real(_) => {
                self.note(Code::WrongType);
                None
            }
        }
    }

    /// A correlation id: CUPTI counts from 1 in 32 bits, and 0 is none.
    #[inline]
    pub(crate) fn correlation(&mut self, cell: usize) -> Option<i64> {
        let id = self.int(cell)?;
        if u32::try_from(id).is_err() {
            self.note(Code::BadNumber);
            return None;
        }
        (id != 0).then_some(id)
    }

    /// An id of 64 bits, which SQLite stores as a signed number; 0 is none.
    #[inline]
    pub(crate) fn id(&mut self, cell: usize) -> Option<u64> {
        self.int(cell).map(i64::cast_unsigned).filter(|&id| id != 0)
    }

    /// The start of an event; the event is lost without it.
    #[inline]
    pub(crate) fn start(&mut self, cell: usize) -> Option<i64> {
        let start = self.int(cell).filter(|start| TIMES_NS.contains(start));
        if start.is_none() {
            self.note(Code::MissingTime);
        }
        start
    }

    /// Start and duration of GPU work, which is kept without a start, too; 0 for both stands for none.
    #[inline]
    pub(crate) fn extent_of_work(&mut self, start: usize, end: usize) -> (i64, Option<i64>) {
        let start = self.int(start).filter(|start| TIMES_NS.contains(start));
        let end = self.int(end);
        let Some(start) = start.filter(|&start| start != 0 || end != Some(0)) else {
            self.note(Code::UntimedWork);
            return (NO_START, None);
        };
        (start, self.ending(start, end))
    }

    /// Start and duration of an event.
    #[inline]
    pub(crate) fn extent(&mut self, start: usize, end: usize) -> Option<(i64, Option<i64>)> {
        let start = self.start(start)?;
        let end = self.int(end);
        Some((start, self.ending(start, end)))
    }

    /// The duration of what ends at `end`, if it does.
    #[inline]
    fn ending(&mut self, start: i64, end: Option<i64>) -> Option<i64> {
        if end.is_none() {
            self.note(Code::MissingDuration);
        }
        self.duration(start, end?)
    }

    /// The duration between two instants.
    #[inline]
    pub(crate) fn duration(&mut self, start: i64, end: i64) -> Option<i64> {
        let duration = end.checked_sub(start).filter(|duration| (0..=LONGEST_NS).contains(duration));
        if duration.is_none() {
            self.note(if end < start { Code::NegativeDuration } else { Code::BadNumber });
        }
        duration
    }
}
