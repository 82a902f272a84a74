//! Declares the columns of tables, and scans their rows.

use rusqlite::Connection;

use super::reader::Builder;
use crate::error::{Error, ErrorKind, Result};
use crate::options::ReadOptions;
use crate::sqlite::catalog::{Catalog, quoted};
use crate::sqlite::cells::Cells;
use crate::sqlite::open::explain;
use crate::stats::{Code, Stats};

/// Rows between two reports of progress.
const REPORT_ROWS: u64 = 1 << 16;

/// A column that is read if it is there.
pub(super) struct Wanted {
    pub(super) name: &'static str,
    /// `table.column`, for findings.
    pub(super) full_name: &'static str,
    /// Without it rows say nothing.
    pub(super) is_required: bool,
}

/// A table.
pub(super) struct Source {
    pub(super) name: &'static str,
    /// Table of the trace that its rows go into.
    pub(super) feeds: &'static str,
    pub(super) columns: &'static [Wanted],
    /// Adds a row to the tables; false if it had to be dropped.
    pub(super) push: fn(&mut Builder<'_>, &mut Cells<'_, '_>) -> bool,
}

/// Declares the columns of tables that have the same ones, and the positions of their cells.
///
/// Cell 0 is the rowid.
macro_rules! sources {
    ($make:ident; $( $cell:ident = $column:literal $need:ident, )*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "names of constants")]
        enum Position { $( $cell, )* }
        $( const $cell: usize = Position::$cell as usize + 1; )*

        /// Declares one of the tables.
        macro_rules! $make {
            ($name:ident: $table:literal, $feeds:ident, $push:path) => {
                pub(in crate::nvprof) static $name: $crate::nvprof::source::Source = $crate::nvprof::source::Source {
                    name: $table,
                    feeds: stringify!($feeds),
                    columns: &[$( $crate::nvprof::source::Wanted {
                        name: $column,
                        full_name: concat!($table, ".", $column),
                        is_required: $crate::nvprof::source::is_required!($need),
                    }, )*],
                    push: $push,
                };
            };
        }
    };
}

/// Whether a need is `Required`.
macro_rules! is_required {
    (Required) => {
        true
    };
    (Usual) => {
        false
    };
}

pub(super) use {is_required, sources};

impl Source {
    /// Reads every row, in order; a damaged page costs the rows behind it.
    pub(super) fn scan(
        &self,
        connection: &Connection,
        catalog: &Catalog,
        builder: &mut Builder<'_>,
        stats: &mut Stats,
        options: &ReadOptions,
    ) -> Result<()> {
        let Some((sql, present)) = self.select(catalog, stats) else { return Ok(()) };
        let mut statement = connection.prepare(&sql).map_err(|e| explain(&e))?;
        let mut rows = statement.query([]).map_err(|e| explain(&e))?;
        let mut last = None;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(()),
                Err(_) => {
                    stats.note_in(Code::DamagedPages, self.name, last);
                    return Ok(());
                }
            };
            let rowid = row.get(0).unwrap_or_default();
            last = Some(rowid);
            stats.seen += 1;
            let number = builder.next_row();
            let mut cells = Cells { row, table: self.name, rowid, number, present, stats };
            if (self.push)(builder, &mut cells) {
                stats.kept += 1;
            } else {
                stats.dropped += 1;
            }
            if stats.seen.is_multiple_of(REPORT_ROWS) {
                report(options, builder.file_bytes)?;
            }
        }
    }

    /// The query for all rows and the cells it fills; null if the table is not there or says nothing.
    fn select(&self, catalog: &Catalog, stats: &mut Stats) -> Option<(String, u64)> {
        let table = catalog.table(self.name)?;
        let mut cells = vec!["rowid".to_owned()];
        let mut present = 1;
        let mut is_readable = true;
        for column in self.columns {
            if table.has(column.name) {
                present |= 1 << cells.len();
                cells.push(quoted(column.name));
                continue;
            }
            cells.push("NULL".to_owned());
            is_readable &= !column.is_required;
            let code = if column.is_required { Code::UnreadableTable } else { Code::MissingColumn };
            if column.is_required || table.rowids.is_some() {
                stats.note_in(code, column.full_name, None);
            }
        }
        let sql = format!("SELECT {} FROM {} ORDER BY rowid", cells.join(", "), quoted(self.name));
        is_readable.then_some((sql, present))
    }
}

/// Tells the caller that the reading goes on; how far it is, nobody knows.
fn report(options: &ReadOptions, file_bytes: u64) -> Result<()> {
    match &options.progress {
        Some(progress) if !progress(0, file_bytes) => Err(Error::new(ErrorKind::Interrupted, "interrupted")),
        _ => Ok(()),
    }
}
