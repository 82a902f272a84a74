//! Table `steps`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A training or inference step, and where its time went.
    /// The eight parts are disjoint, in order of priority, and sum to `total_ns`.
    Steps, StepRow, "steps";
    recorded {
        /// Step number: as in the name, else counted; null for a trace without steps, taken as one.
        step: Option<i32>,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// `row` in `ops` or `ranges` of the annotation; of the process whose comes first, if several
        /// processes mark the step.
        row: Option<u32> as link,
        /// Start, ns: of the annotation, or the end of the previous step's GPU work if that is later.
        start_ns: i64 as time,
        /// Wall time, ns: to the end of the annotation or of the step's GPU work, whichever is later.
        total_ns: i64 as duration,
        /// Start of the annotation, ns.
        host_start_ns: i64 as time,
        /// Duration of the annotation, ns.
        host_dur_ns: i64 as duration,
        /// Whether the trace ends before the step's GPU work does: such a step is left out of averages.
        is_partial: bool,
        /// A kernel runs that is not communication, ns.
        kernel_ns: i64 as duration,
        /// A copy runs, none of the above, ns.
        memcpy_ns: i64 as duration,
        /// A memset runs, none of the above, ns.
        memset_ns: i64 as duration,
        /// Communication runs, none of the above, ns.
        communication_ns: i64 as duration,
        /// The host is inside a runtime call, none of the above, ns.
        runtime_ns: i64 as duration,
        /// The host loads data, none of the above, ns.
        dataloader_ns: i64 as duration,
        /// The host runs an operator or annotation, none of the above, ns.
        cpu_exec_ns: i64 as duration,
        /// The rest, ns.
        other_ns: i64 as duration,
    }
    derived {}
}
