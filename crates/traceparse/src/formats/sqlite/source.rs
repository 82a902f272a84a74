//! Declares the tables of a database: their columns, and what turns their rows into rows of the trace.

use super::builder::{Builder, Recorder};
use super::catalog::{Rows, Table};
use super::cells::Cells;
use super::open::quoted;
use crate::options::ReadOptions;
use crate::schema::Tables;
use crate::stats::{Code, Stats};

/// How much depends on a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Without it a row says nothing.
    Required,
    /// Every version of the recorder that this reader knows writes it.
    Usual,
    /// It came with a later version.
    Newer,
    /// Earlier versions wrote it here, later ones write it elsewhere.
    Former,
}

/// A column that is read if it is there.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    /// Columns of the trace that it serves; empty if rows cannot do without it.
    pub(crate) serves: &'static [&'static str],
}

/// A table of events.
pub(crate) struct Source<R: Recorder> {
    pub(crate) name: &'static str,
    /// Table of the trace that its rows go into.
    pub(crate) feeds: &'static str,
    /// What a recording must be set up with to have this table.
    pub(crate) recorded_with: R::Feature,
    pub(crate) columns: &'static [Wanted],
    /// Columns of which a row tells whether any has a value, as its last cell.
    pub(crate) flagged: &'static [&'static str],
    pub(crate) push: Push<R>,
}

/// Adds a row to the tables; false if it had to be dropped.
pub(crate) type Push<R> = fn(&mut Builder<'_, '_, R>, &mut Cells<'_, '_>, &mut Tables) -> bool;

/// Declares the columns of a table, and the cell of a row that holds each; with `after` those of another
/// declaration stand in front.
macro_rules! columns {
    ($cells:ident $(after $first:ident)? {
        $( $cell:ident = $column:literal $need:ident $(for [$($serves:ident)+])?, )*
    }) => {
        struct $cells;

        impl $cells {
            const ALL: &'static [$crate::formats::sqlite::source::Wanted] = {
                const FIRST: &[$crate::formats::sqlite::source::Wanted] = columns!(@all $($first)?);
                const OWN: &[$crate::formats::sqlite::source::Wanted] = &[$(
                    $crate::formats::sqlite::source::Wanted {
                        name: $column,
                        need: $crate::formats::sqlite::source::Need::$need,
                        serves: &[$($(stringify!($serves)),+)?],
                    },
                )*];
                &$crate::formats::sqlite::source::joined::<{ FIRST.len() + OWN.len() }>(FIRST, OWN)
            };
            $( const $cell: usize = $crate::formats::sqlite::source::cell_of(Self::ALL, $column); )*
        }
    };
    (@all) => { &[] };
    (@all $first:ident) => { $first::ALL };
}

pub(crate) use columns;

/// The cell of a row that holds a column; cell 0 is the rowid.
pub(crate) const fn cell_of(columns: &[Wanted], name: &str) -> usize {
    let mut at = 0;
    while !is_same(columns[at].name.as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at + 1
}

/// The columns of two declarations, `COUNT` in all.
pub(crate) const fn joined<const COUNT: usize>(first: &[Wanted], rest: &[Wanted]) -> [Wanted; COUNT] {
    let mut all = [rest[0]; COUNT];
    let mut at = 0;
    while at < COUNT {
        all[at] = if at < first.len() { first[at] } else { rest[at - first.len()] };
        at += 1;
    }
    all
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl<R: Recorder> Source<R> {
    pub(crate) const fn new(
        name: &'static str,
        feeds: &'static str,
        recorded_with: R::Feature,
        columns: &'static [Wanted],
        push: Push<R>,
    ) -> Self {
        Self { name, feeds, recorded_with, columns, flagged: &[], push }
    }

    /// Position of the flag among the cells of a row.
    pub(crate) fn flag(&self) -> usize {
        self.columns.len() + 1
    }

    /// The query for the rows of a run, and the cells it fills; null where a column is missing without
    /// which rows say nothing.
    pub(super) fn select(
        &self,
        table: &Table,
        options: &ReadOptions,
        stats: &mut Stats,
    ) -> Option<(String, u64)> {
        let has_rowids = table.rows != Rows::InOrder;
        let mut cells = vec![if has_rowids { "rowid" } else { "NULL" }.to_owned()];
        let mut is_readable = true;
        let mut present = 1;
        for column in self.columns {
            if !self.is_wanted(column, options) {
                cells.push("NULL".to_owned());
                continue;
            }
            if table.has(column.name) {
                present |= 1 << cells.len();
                cells.push(quoted(column.name));
                continue;
            }
            cells.push("NULL".to_owned());
            let code = match column.need {
                Need::Required => Code::UnreadableTable,
                Need::Usual => Code::MissingColumn,
                Need::Newer => Code::NewerColumn,
                Need::Former => continue,
            };
            is_readable &= column.need != Need::Required;
            stats.note_column(code, self.name, column.name);
        }
        let is_flagged = options.wants("extra_args") || options.wants("collectives");
        let flagged = self.flagged.iter().filter(|column| is_flagged && table.has(column));
        let flagged: Vec<String> = flagged.map(|column| quoted(column)).collect();
        present |= u64::from(!flagged.is_empty()) << cells.len();
        cells.push(match flagged.as_slice() {
            [] => "0".to_owned(),
            [one] => format!("{one} IS NOT NULL"),
            many => format!("coalesce({}) IS NOT NULL", many.join(", ")),
        });
        let run = if has_rowids {
            "WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid"
        } else {
            "LIMIT ?2 OFFSET ?1 - 1"
        };
        let sql = format!("SELECT {} FROM {} {run}", cells.join(", "), quoted(self.name));
        is_readable.then_some((sql, present))
    }

    fn is_wanted(&self, column: &Wanted, options: &ReadOptions) -> bool {
        column.serves.is_empty()
            || column.serves.iter().any(|served| options.wants_column(self.feeds, served))
            // The links between calls and work are wanted where both are.
            || (column.serves.contains(&"launch_row") && options.wants("launches"))
    }
}
