//! The macro that declares a table, and the trait through which all tables are handled alike.

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::symbols::SymbolTable;

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
    /// The Arrow schema of [`Table::into_batch`].
    fn schema() -> Schema {
        let fields: Vec<_> = Self::columns()
            .into_iter()
            .map(|c| arrow_schema::Field::new(c.name, c.data_type, c.nullable))
            .collect();
        Schema::new(fields)
    }
    /// All rows as one Arrow batch.
    fn into_batch(self, symbols: &SymbolTable) -> RecordBatch;
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
                let mut dictionary = $crate::schema::DictionaryBuilder::new(symbols);
                let arrays: Vec<arrow_array::ArrayRef> = vec![
                    $( <$rty as $crate::schema::Cell>::export(self.$rcol.padded_to(rows), &mut dictionary), )*
                    $( <$dty as $crate::schema::Cell>::export(self.$dcol.padded_to(rows), &mut dictionary), )*
                ];
                let schema = std::sync::Arc::new(<Self as $crate::schema::Table>::schema());
                arrow_array::RecordBatch::try_new(schema, arrays)
                    .expect("columns of one table have one length and the declared types")
            }
        }
    };
}

pub(crate) use table;
