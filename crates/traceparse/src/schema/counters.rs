//! Table `counters`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// One value of a counter sample or of a hardware-counter range; an event with several values has several rows.
    Counters, CounterRow, "counters";
    recorded {
        /// Position of the event in the source; unique over all tables of the trace.
        row: u32 as row,
        /// Name as recorded; null where the event has none.
        name: Option<Symbol>,
        /// Category as recorded (`cat`).
        category: Option<Symbol>,
        /// Number of the (pid, tid) pair the event is drawn on; key of `threads`.
        track: u32 as track,
        /// Start, ns on the trace's clock.
        start_ns: i64 as time,
        /// Duration, ns; null where the source does not say or says nonsense.
        dur_ns: Option<i64> as duration,
        /// Name of the value inside the event.
        counter: Symbol,
        /// The value; null where it is no number.
        value: Option<f64>,
    }
    derived {
        /// Process id; null where the source has a text (see `threads`).
        pid: Option<i64> as id,
        /// Thread id; null where the source has a text (see `threads`).
        tid: Option<i64> as id,
    }
}
