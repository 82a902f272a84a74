//! The macro that declares a table, and the trait through which all tables are handled alike.

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use std::sync::Arc;

use super::column::{Cell, Column};
use super::symbols::{DictionaryBuilder, SymbolTable};

/// Meaning of the numbers of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "as they are written in declarations")]
pub enum Role {
    /// Position of the event itself in the source.
    row,
    /// The `row` of another event.
    link,
    /// The number of a track.
    track,
    /// A count.
    count,
    /// A moment on the trace's clock, ns.
    time,
    /// A length of time, ns.
    duration,
    /// A number or word by which the profiler identifies things. The reader has resolved it into a link, a
    /// track or a table.
    id,
}

impl Role {
    /// The name that declarations use.
    pub fn name(self) -> &'static str {
        match self {
            Self::row => "row",
            Self::link => "link",
            Self::track => "track",
            Self::count => "count",
            Self::time => "time",
            Self::duration => "duration",
            Self::id => "id",
        }
    }

    /// Returns whether a column may have this role: positions and times must declare their meaning, and
    /// columns with the usual names must have the usual meaning.
    pub(crate) const fn fits(role: Option<Self>, name: &str, is_position: bool) -> bool {
        match (name.as_bytes(), role) {
            (b"row", _) => matches!(role, Some(Self::row | Self::link)),
            ([.., b'_', b'r', b'o', b'w'], _) => matches!(role, Some(Self::link)),
            (b"track", _) => matches!(role, Some(Self::track)),
            ([.., b'_', b'n', b's'], _) => matches!(role, Some(Self::time | Self::duration)),
            (_, Some(Self::time | Self::duration)) => false,
            (_, Some(Self::id)) => !is_position,
            (_, role) => is_position == role.is_some(),
        }
    }
}

/// Describes a column for documentation and for the schema in Python.
#[derive(Debug, Clone)]
pub struct ColumnSpec {
    /// Column name.
    pub name: &'static str,
    /// Arrow type of the exported column.
    pub data_type: arrow_schema::DataType,
    /// Whether the column may hold nulls.
    pub nullable: bool,
    /// Meaning of its numbers, if they are more than values.
    pub role: Option<Role>,
    /// Meaning of the column, with its unit.
    pub doc: String,
}

/// A table of the trace.
pub trait Table: Default {
    /// The name users see.
    const NAME: &'static str;
    /// Description of a row.
    fn doc() -> String;
    /// The columns, in order.
    fn columns() -> Vec<ColumnSpec>;
    /// Number of rows.
    fn len(&self) -> usize;
    /// Whether the table has no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Keeps the rows that have a flag and returns the number of removed rows. No derived column may be set.
    fn keep_rows(&mut self, flags: &[bool]) -> usize;
    /// All rows as one Arrow batch, of the columns that hold any value.
    ///
    /// Most optional columns are null throughout in most traces; they have no place in memory.
    fn into_batch(self, symbols: &SymbolTable) -> RecordBatch;
}

/// Exports columns one after the other.
pub(crate) struct BatchBuilder<'a> {
    dictionary: DictionaryBuilder<'a>,
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl<'a> BatchBuilder<'a> {
    pub(crate) fn new(symbols: &'a SymbolTable) -> Self {
        Self { dictionary: DictionaryBuilder::new(symbols), fields: Vec::new(), arrays: Vec::new() }
    }

    /// Adds a column, unless it holds no value.
    pub(crate) fn add<C: Cell>(&mut self, name: &'static str, column: Column<C::Stored>) {
        if !column.is_all_null() {
            self.fields.push(Field::new(name, C::data_type(), C::NULLABLE));
            self.arrays.push(C::export(column, &mut self.dictionary));
        }
    }

    pub(crate) fn finish(self, rows: usize) -> RecordBatch {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(self.fields)), self.arrays, &options)
            .expect("columns of one table have one length and the declared types")
    }
}

/// Returns the name of a column as users see it, without the prefix of raw identifiers.
pub(crate) const fn column_name(written: &'static str) -> &'static str {
    match written.as_bytes() {
        [b'r', b'#', name @ ..] => match std::str::from_utf8(name) {
            Ok(name) => name,
            Err(_) => written,
        },
        _ => written,
    }
}

/// Applies a change to a column whose role concerns it: `rows` or `tracks`, or hands its values over.
macro_rules! change_by_role {
    (rows [row] $column:expr, $change:expr) => {
        $column.map_in_place(&$change)
    };
    (rows [link] $column:expr, $change:expr) => {
        $column.map_in_place(&$change)
    };
    (tracks [track] $column:expr, $change:expr) => {
        $column.map_in_place(&$change)
    };
    (marks [track] $column:expr, $change:expr) => {
        $column.iter().flatten().for_each(&mut *$change)
    };
    (own [row] $column:expr, $change:expr) => {
        $column.iter().flatten().for_each(&mut *$change)
    };
    ($change_of:ident [$($role:ident)?] $column:expr, $change:expr) => {{
        let _ = &$change;
    }};
}

/// The role of a column, if it has any.
macro_rules! role_of {
    ([$role:ident]) => {
        Some($crate::schema::table::Role::$role)
    };
    ([]) => {
        None
    };
}

/// Declares a table: its columns, its row type and how it is exported.
///
/// `recorded` columns come from the source and make up the row type. `derived` columns are filled by the link
/// stage in one go and are null until then. Columns of positions or times declare their meaning with `as`;
/// renumbering rows and tracks relies on it. Columns from `shared_columns` are written as their names alone.
macro_rules! table {
    (
        $(#[doc = $doc:literal])+
        $table:ident, $row:ident, $name:literal;
        recorded { $($recorded:tt)* }
        derived { $($derived:tt)* }
    ) => {
        $crate::schema::table::expand_columns! {
            [$(#[doc = $doc])+ $table, $row, $name;] [] $($recorded)* ; $($derived)*
        }
    };
}

/// Makes of a list of columns the macro that puts them where a table names them.
macro_rules! shared_columns {
    ($d:tt $( $(#[doc = $doc:literal])+ $column:ident: $type:ty $(as $role:ident)?, )*) => {
        /// Goes through the columns of a table, recorded and behind `;` derived, and defines the table.
        macro_rules! expand_columns {
            $( ($d head:tt [$d($d done:tt)*] $column, $d($d rest:tt)*) => {
                $crate::schema::table::expand_columns! {
                    $d head [$d($d done)* $(#[doc = $doc])+ $column: $type $(as $role)?,] $d($d rest)*
                }
            }; )*
            ($d head:tt [$d($d done:tt)*]
             $d(#[doc = $d doc:literal])+ $d column:ident: $d type:ty $d(as $d role:ident)?, $d($d rest:tt)*) => {
                $crate::schema::table::expand_columns! {
                    $d head [$d($d done)* $d(#[doc = $d doc])+ $d column: $d type $d(as $d role)?,] $d($d rest)*
                }
            };
            ($d head:tt [$d($d done:tt)*] ; $d($d rest:tt)*) => {
                $crate::schema::table::expand_columns! { $d head [$d($d done)* ;] $d($d rest)* }
            };
            ([$d($d head:tt)*] [$d($d done:tt)*]) => {
                $crate::schema::table::define_table! { $d($d head)* $d($d done)* }
            };
        }
    };
}

shared_columns! { $
    /// Position of the event in the source, unique over all tables of the trace. Exception: an operator that
    /// PyTorch wrote as an NVTX range has the number of the range.
    row: u32 as row,
    /// Name as recorded. Null if the event has none.
    name: Option<Symbol>,
    /// Category as recorded (`cat`).
    category: Option<Symbol> as id,
    /// Number of the (pid, tid) pair on which the event is drawn; key of `threads`.
    track: u32 as track,
    /// GPU index.
    device: Option<i32>,
    /// Stream id.
    stream: Option<i64>,
    /// Start, ns on the trace's clock.
    start_ns: i64 as time,
    /// Duration, ns. Null if it is missing or impossible.
    dur_ns: Option<i64> as duration,
    /// Correlation id, shared by a launch and the GPU operation it started.
    correlation: Option<i64> as id,
    /// `External id` as recorded. It is wrong in files of 2022 to 2024: use the row links instead.
    external_id: Option<i64> as id,
    /// `Ev Idx`: order of collection inside the profiler.
    event_index: Option<i64> as id,
    /// False if the end was not seen, so that the duration extends to the end of the window.
    finished: Option<bool>,
    /// Process id. Null if the source has a text (see `threads`).
    pid: Option<i64> as id,
    /// Thread id. Null if the source has a text (see `threads`).
    tid: Option<i64> as id,
    /// Number of the profiler step that the row belongs to.
    step: Option<i32>,
    /// Track of the thread that called `backward`, if an autograd thread runs the backward pass for it. The
    /// annotations and NVTX ranges that are open on the calling thread contain the GPU operations of this
    /// row.
    caller_track: Option<u32> as track,
}

/// Defines a table all of whose columns are written out.
macro_rules! define_table {
    (
        $(#[doc = $doc:literal])+
        $table:ident, $row:ident, $name:literal;
        $( $(#[doc = $rdoc:literal])+ $rcol:ident : $rty:ty $(as $rrole:ident)?, )* ;
        $( $(#[doc = $ddoc:literal])+ $dcol:ident : $dty:ty $(as $drole:ident)?, )*
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Default)]
        pub struct $table {
            $( $(#[doc = $rdoc])+ pub $rcol: $crate::schema::Column<<$rty as $crate::schema::Cell>::Stored>, )*
            $( $(#[doc = $ddoc])+ pub $dcol: $crate::schema::Column<<$dty as $crate::schema::Cell>::Stored>, )*
        }

        #[doc = concat!("One row of [`", stringify!($table), "`].")]
        #[derive(Debug, Clone, Default)]
        pub struct $row {
            $( $(#[doc = $rdoc])+ pub $rcol: $rty, )*
        }

        impl $table {
            /// Appends one row.
            #[inline]
            pub fn push(&mut self, row: $row) {
                $( self.$rcol.push($crate::schema::Cell::store(row.$rcol)); )*
            }

            /// Moves the rows of `other` behind those of `self`; derived columns must be unset in both.
            pub fn append(&mut self, other: &mut Self) {
                $( self.$rcol.append(&mut other.$rcol); )*
            }

            /// The rows with these indices, in their order; derived columns must be unset.
            pub(crate) fn chosen(&self, indices: &[usize]) -> Self {
                Self { $( $rcol: self.$rcol.chosen(indices), )* $( $dcol: $crate::schema::Column::default(), )* }
            }

            /// Removes every row and keeps the memory.
            pub(crate) fn clear(&mut self) {
                $( self.$rcol.clear(); )*
                $( self.$dcol.clear(); )*
            }

            /// Makes columns null whose names `is_wanted` refuses.
            pub(crate) fn keep_only(&mut self, is_wanted: impl Fn(&str) -> bool) {
                $( if !is_wanted($crate::schema::table::column_name(stringify!($rcol))) {
                    self.$rcol.forget();
                } )*
                $( if !is_wanted($crate::schema::table::column_name(stringify!($dcol))) {
                    self.$dcol.forget();
                } )*
            }

            /// Makes room for `factor` times the rows it has.
            pub(crate) fn reserve_times(&mut self, factor: f64) {
                $( self.$rcol.reserve_times(factor); )*
            }

            /// Changes the row numbers of its events and of those they refer to.
            pub(crate) fn change_rows(&mut self, change: impl Fn(u32) -> u32) {
                $( $crate::schema::table::change_by_role!(rows [$($rrole)?] self.$rcol, change); )*
            }

            /// Puts its events into the order of the source; derived columns must be unset.
            pub(crate) fn sort_rows(&mut self) {
                let mut rows = Vec::new();
                self.mark_rows(&mut |row| rows.push(row));
                if rows.is_sorted() {
                    return;
                }
                let mut order: Vec<usize> = (0..rows.len()).collect();
                order.sort_by_key(|&index| rows[index]);
                *self = self.chosen(&order);
            }

            /// Changes the numbers of tracks.
            pub(crate) fn change_tracks(&mut self, change: impl Fn(u32) -> u32) {
                $( $crate::schema::table::change_by_role!(tracks [$($rrole)?] self.$rcol, change); )*
            }

            /// Hands the row numbers of its events to `mark`.
            pub(crate) fn mark_rows(&self, mark: &mut impl FnMut(u32)) {
                $( $crate::schema::table::change_by_role!(own [$($rrole)?] self.$rcol, mark); )*
            }

            /// Hands every track that an event is drawn on to `mark`.
            pub(crate) fn mark_tracks(&self, mark: &mut impl FnMut(u32)) {
                $( $crate::schema::table::change_by_role!(marks [$($rrole)?] self.$rcol, mark); )*
            }
        }

        $( const _: () = assert!($crate::schema::table::Role::fits(
            $crate::schema::table::role_of!([$($rrole)?]),
            $crate::schema::table::column_name(stringify!($rcol)),
            <$rty as $crate::schema::Cell>::IS_POSITION,
        )); )*
        $( const _: () = assert!($crate::schema::table::Role::fits(
            $crate::schema::table::role_of!([$($drole)?]),
            $crate::schema::table::column_name(stringify!($dcol)),
            <$dty as $crate::schema::Cell>::IS_POSITION,
        )); )*

        impl $crate::schema::Table for $table {
            const NAME: &'static str = $name;

            fn doc() -> String {
                concat!($($doc, "\n"),+).trim().to_owned()
            }

            fn columns() -> Vec<$crate::schema::ColumnSpec> {
                vec![
                    $( $crate::schema::ColumnSpec {
                        name: $crate::schema::table::column_name(stringify!($rcol)),
                        data_type: <$rty as $crate::schema::Cell>::data_type(),
                        nullable: <$rty as $crate::schema::Cell>::NULLABLE,
                        role: $crate::schema::table::role_of!([$($rrole)?]),
                        doc: concat!($($rdoc),+).trim().to_owned(),
                    }, )*
                    $( $crate::schema::ColumnSpec {
                        name: $crate::schema::table::column_name(stringify!($dcol)),
                        data_type: <$dty as $crate::schema::Cell>::data_type(),
                        nullable: true,
                        role: $crate::schema::table::role_of!([$($drole)?]),
                        doc: concat!($($ddoc),+).trim().to_owned(),
                    }, )*
                ]
            }

            fn len(&self) -> usize {
                [$( self.$rcol.len() ),*].into_iter().next().unwrap_or(0)
            }

            fn keep_rows(&mut self, flags: &[bool]) -> usize {
                let gone = flags.iter().filter(|stays| !**stays).count();
                if gone > 0 {
                    $( self.$rcol.keep(flags); )*
                }
                gone
            }

            fn into_batch(self, symbols: &$crate::schema::SymbolTable) -> arrow_array::RecordBatch {
                let rows = $crate::schema::Table::len(&self);
                let mut batch = $crate::schema::BatchBuilder::new(symbols);
                $( batch.add::<$rty>($crate::schema::table::column_name(stringify!($rcol)), self.$rcol); )*
                $( batch.add::<$dty>($crate::schema::table::column_name(stringify!($dcol)), self.$dcol); )*
                batch.finish(rows)
            }
        }
    };
}

pub(crate) use {change_by_role, define_table, expand_columns, role_of, table};
