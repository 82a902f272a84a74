//! Tells Python what the tables and columns are.

use arrow_schema::DataType;
use pyo3::prelude::*;
use traceparse::schema::{ColumnSpec, Role, Tables};
use traceparse::{Code, HOST_COLLECTIVES, Lengths};

/// Name, Polars type, whether it may be null, meaning, and what its numbers stand for.
type Column = (&'static str, String, bool, String, Option<&'static str>);

/// Name, what a row is, and columns.
type Table = (&'static str, String, Vec<Column>);

/// Every table with its columns, as declared where they are filled.
#[pyfunction]
pub(crate) fn describe_tables() -> Vec<Table> {
    let columns = |specs: Vec<ColumnSpec>| {
        specs
            .into_iter()
            .map(|spec| {
                let role = spec.role.map(Role::name);
                (spec.name, polars_type(&spec.data_type), spec.nullable, spec.doc, role)
            })
            .collect()
    };
    Tables::describe().into_iter().map(|(name, doc, specs)| (name, doc, columns(specs))).collect()
}

/// Code, severity and message of every diagnostic.
#[pyfunction]
pub(crate) fn describe_diagnostics() -> Vec<(&'static str, &'static str, &'static str)> {
    Code::ALL.iter().map(|code| (code.name(), code.severity().name(), code.message())).collect()
}

/// Beginnings of the names of ops that are collectives which the host runs itself.
#[pyfunction]
pub(crate) fn host_collectives() -> Vec<&'static str> {
    HOST_COLLECTIVES.to_vec()
}

/// Sums of queries, keys, their squares and products, of the prompts and of the decoding requests of a step.
#[pyfunction]
pub(crate) fn step_lengths(name: &str) -> Option<Vec<Lengths>> {
    traceparse::step_lengths(name)
}

/// The type a column has once Polars has taken it.
fn polars_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Dictionary(..) => "Categorical".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "String".to_owned(),
        DataType::FixedSizeList(item, width) => {
            format!("Array({}, shape=({width},))", polars_type(item.data_type()))
        }
        other => other.to_string(),
    }
}
