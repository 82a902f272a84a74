//! Table `threads`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// A track: a thread, a stream or any other row that events are drawn on.
    Threads, ThreadRow, "threads";
    recorded {
        /// Number of the track.
        track: u32 as track,
        /// Process id or device index; null if it is a text.
        pid: Option<i64>,
        /// Thread or stream id; null if it is a text.
        tid: Option<i64>,
        /// Process id where it is a text.
        pid_text: Option<Symbol>,
        /// Thread id where it is a text.
        tid_text: Option<Symbol>,
        /// Name of the process.
        process_name: Option<Symbol>,
        /// Label of the process, such as `GPU 0`.
        process_label: Option<Symbol>,
        /// Name of the thread or stream.
        thread_name: Option<Symbol>,
        /// Position of the thread in viewers.
        sort_index: Option<i64>,
    }
    derived {}
}
