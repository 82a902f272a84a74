//! Which `nn.Module` each op ran in.

use super::containment::innermost_containers;
use super::extents::Extents;
use super::names::{Class, Names};
use super::order::TrackOrder;
use crate::schema::{Ops, PythonFrames, Table};

/// Index of the innermost module call on the thread in which each op starts; `NONE` for none.
///
/// Frames and ops overlap in part by design, so the start of the op decides.
pub(super) fn enclosing_modules(
    ops: &Ops,
    op_order: &TrackOrder,
    python: &PythonFrames,
    names: &Names,
    track_count: usize,
) -> Vec<u32> {
    let op_extents = Extents::new(&ops.start_ns, &ops.dur_ns);
    let frames = Extents::new(&python.start_ns, &python.dur_ns);
    let is_module = |frame: u32| {
        python.module_id.get(frame as usize).is_some() || names.is(&python.name, frame, Class::MODULE)
    };
    let order = TrackOrder::new(python.track.values(), track_count, frames, is_module);
    let at_start = |op| (op_extents.start(op), op_extents.start(op).saturating_add(1));
    innermost_containers(&order, frames, |_| true, op_order, at_start, ops.len())
}
