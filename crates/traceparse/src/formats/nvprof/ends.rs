//! The times at which NVTX ranges end.

use hashbrown::{HashMap, HashSet};
use rusqlite::Connection;

use crate::formats::sqlite::catalog::Catalog;
use crate::stats::{Code, Stats};

/// The table of starts, ends and marks.
pub(super) const MARKERS_TABLE: &str = "CUPTI_ACTIVITY_KIND_MARKER";

/// Bits of the flags (`CUpti_ActivityFlag`).
pub(super) const INSTANTANEOUS: i64 = 1;
pub(super) const START: i64 = 2;
pub(super) const END: i64 = 4;
const BOTH: i64 = START | END;

/// The times at which ranges end, by id; starts and ends need not stand in order.
#[derive(Default)]
pub(super) struct Ends {
    at: HashMap<i64, i64>,
    /// Ranges that begin in the file.
    begun: HashSet<i64>,
    /// End of the session, for ranges without an end.
    pub(super) session_end: Option<i64>,
}

impl Ends {
    /// Reads the ends of all ranges. Ends without a start are counted.
    pub(super) fn read(connection: &Connection, catalog: &Catalog, stats: &mut Stats) -> Self {
        let mut ends = Self { session_end: session_end(connection, catalog), ..Self::default() };
        let table = MARKERS_TABLE;
        if !catalog.has(table, &["flags", "timestamp", "id"]) {
            return ends;
        }
        let sql = format!("SELECT rowid, id, timestamp, flags & {START} FROM {table} WHERE flags & {BOTH}");
        let Ok(mut statement) = connection.prepare(&sql) else { return ends };
        let Ok(mut rows) = statement.query([]) else { return ends };
        while let Ok(Some(row)) = rows.next() {
            match (row.get(1), row.get(2)) {
                (Ok(id), _) if row.get::<_, i64>(3).is_ok_and(|start| start != 0) => {
                    ends.begun.insert(id);
                }
                (Ok(id), Ok(at)) => {
                    ends.at.entry(id).or_insert(at);
                }
                _ => stats.note_in(Code::MissingTime, table, row.get(0).ok()),
            }
        }
        ends
    }

    /// Whether a range begins in the file.
    pub(super) fn has_begun(&self, id: i64) -> bool {
        self.begun.contains(&id)
    }

    /// When a range ends.
    pub(super) fn end(&self, id: i64) -> Option<i64> {
        self.at.get(&id).copied()
    }
}

/// The latest time in the database.
fn session_end(connection: &Connection, catalog: &Catalog) -> Option<i64> {
    let columns = [
        ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "end"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "end"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "end"),
        ("CUPTI_ACTIVITY_KIND_DRIVER", "end"),
        (MARKERS_TABLE, "timestamp"),
    ];
    let latest = columns.into_iter().filter(|(table, column)| catalog.has(table, &[column])).filter_map(
        |(table, column)| {
            let sql = format!("SELECT max({column}) FROM {table} WHERE typeof({column}) = 'integer'");
            connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten()
        },
    );
    latest.max()
}
