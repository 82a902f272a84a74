//! Tells Python what the tables and columns are.

use arrow_schema::DataType;
use pyo3::prelude::*;
use traceparse::schema::Tables;

/// Name, Polars type, whether it may be null, and meaning.
type Column = (&'static str, String, bool, String);

/// Name, what a row is, and columns.
type Table = (&'static str, String, Vec<Column>);

/// Every table with its columns, as declared where they are filled.
#[pyfunction]
pub(crate) fn describe_tables() -> Vec<Table> {
    let columns = |specs: Vec<traceparse::schema::ColumnSpec>| {
        specs
            .into_iter()
            .map(|spec| (spec.name, polars_type(&spec.data_type), spec.nullable, spec.doc))
            .collect()
    };
    Tables::describe().into_iter().map(|(name, doc, specs)| (name, doc, columns(specs))).collect()
}

/// The type a column has once Polars has taken it.
fn polars_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Dictionary(..) => "Categorical".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "String".to_owned(),
        other => other.to_string(),
    }
}
