//! What can be said when only some tables were read.

use crate::options::ReadOptions;
use crate::schema::{Column, Steps, Tables};

/// Clears what was derived from tables that were not read: no link found there is no link missing.
pub(super) fn clear_unfounded(tables: &mut Tables, options: &ReadOptions) {
    if !options.wants_column("gpu_ops", "name") {
        tables.gpu_ops.is_communication = Column::default();
        tables.gpu_ops.activity = Column::default();
    }
    if !(options.wants_column("ops", "name") && options.wants_column("ops", "category")) {
        tables.ops.is_annotation = Column::default();
    }
    if !options.wants("ops") {
        // Ranges mark steps only where no op does.
        tables.ranges.activity = Column::default();
    }
    let has_calls = options.wants("launches") && options.wants("gpu_ops");
    let has_host = options.wants("ops") && options.wants("ranges");
    if !(has_calls && has_host) {
        tables.gpu_ops.link = Column::default();
        tables.steps = Steps::default();
        tables.gpu_ops.step = Column::default();
        tables.launches.step = Column::default();
        tables.ops.step = Column::default();
        tables.ranges.step = Column::default();
        tables.memory.step = Column::default();
    }
}
