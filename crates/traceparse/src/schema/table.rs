//! The macro that declares a table, and the trait through which all tables are handled alike.

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use std::sync::Arc;

use super::column::{Cell, Column};
use super::symbols::{DictionaryBuilder, SymbolTable};

/// What a column is, for documentation and for the schema that Python shows.
#[derive(Debug, Clone)]
pub struct ColumnSpec {
    /// Column name.
    pub name: &'static str,
    /// Arrow type of the exported column.
    pub data_type: arrow_schema::DataType,
    /// Whether the column may hold nulls.
    pub nullable: bool,
    /// What the column means, with its unit.
    pub doc: String,
}

/// A table of the trace.
pub trait Table: Default {
    /// The name users see.
    const NAME: &'static str;
    /// What a row is.
    fn doc() -> String;
    /// The columns, in order.
    fn columns() -> Vec<ColumnSpec>;
    /// Number of rows.
    fn len(&self) -> usize;
    /// Whether the table has no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
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

/// Declares a table: its columns, its row type and how it is exported.
///
/// `recorded` columns come from the source and make up the row type; `derived` columns are
/// filled by the link stage in one go and are null until then.
macro_rules! table {
    (
        $(#[doc = $doc:literal])+
        $table:ident, $row:ident, $name:literal;
        recorded { $( $(#[doc = $rdoc:literal])+ $rcol:ident : $rty:ty, )* }
        derived { $( $(#[doc = $ddoc:literal])+ $dcol:ident : $dty:ty, )* }
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

            /// Removes every row and keeps the memory.
            pub(crate) fn clear(&mut self) {
                $( self.$rcol.clear(); )*
                $( self.$dcol.clear(); )*
            }

            /// Makes columns null whose names `is_wanted` refuses.
            pub(crate) fn keep_only(&mut self, is_wanted: impl Fn(&str) -> bool) {
                $( if !is_wanted(stringify!($rcol)) {
                    self.$rcol.forget();
                } )*
                $( if !is_wanted(stringify!($dcol)) {
                    self.$dcol.forget();
                } )*
            }

            /// Makes room for `factor` times the rows it has.
            pub(crate) fn reserve_times(&mut self, factor: f64) {
                $( self.$rcol.reserve_times(factor); )*
            }
        }

        impl $crate::schema::Table for $table {
            const NAME: &'static str = $name;

            fn doc() -> String {
                concat!($($doc, "\n"),+).trim().to_owned()
            }

            fn columns() -> Vec<$crate::schema::ColumnSpec> {
                vec![
                    $( $crate::schema::ColumnSpec {
                        name: stringify!($rcol),
                        data_type: <$rty as $crate::schema::Cell>::data_type(),
                        nullable: <$rty as $crate::schema::Cell>::NULLABLE,
                        doc: concat!($($rdoc),+).trim().to_owned(),
                    }, )*
                    $( $crate::schema::ColumnSpec {
                        name: stringify!($dcol),
                        data_type: <$dty as $crate::schema::Cell>::data_type(),
                        nullable: true,
                        doc: concat!($($ddoc),+).trim().to_owned(),
                    }, )*
                ]
            }

            fn len(&self) -> usize {
                [$( self.$rcol.len() ),*].into_iter().next().unwrap_or(0)
            }

            fn into_batch(self, symbols: &$crate::schema::SymbolTable) -> arrow_array::RecordBatch {
                let rows = $crate::schema::Table::len(&self);
                let mut batch = $crate::schema::BatchBuilder::new(symbols);
                $( batch.add::<$rty>(stringify!($rcol), self.$rcol); )*
                $( batch.add::<$dty>(stringify!($dcol), self.$dcol); )*
                batch.finish(rows)
            }
        }
    };
}

pub(crate) use table;
