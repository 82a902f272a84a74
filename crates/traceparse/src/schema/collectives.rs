//! Table `collectives`.

use super::symbols::Symbol;
use super::table::table;

table! {
    /// What is known of a collective: arguments recorded with an op or with the kernel that ran it.
    Collectives, CollectiveRow, "collectives";
    recorded {
        /// `row` of the op or GPU op that carries the arguments.
        row: u32 as link,
        /// op or gpu_op: the table of that row.
        source: Symbol,
        /// Collective name, such as `allreduce`.
        name: Option<Symbol>,
        /// Element type.
        dtype: Option<Symbol>,
        /// Elements sent by this rank.
        in_elements: Option<i64>,
        /// Elements received by this rank.
        out_elements: Option<i64>,
        /// Input split sizes as recorded.
        in_split: Option<Symbol>,
        /// Output split sizes as recorded.
        out_split: Option<Symbol>,
        /// Ranks in the process group.
        group_size: Option<i64>,
        /// Process group name.
        process_group: Option<Symbol>,
        /// Process group description.
        process_group_description: Option<Symbol>,
        /// Ranks of the group as recorded; the recorder cuts the list at 30.
        process_group_ranks: Option<Symbol>,
        /// Rank inside the group.
        rank: Option<i64>,
        /// Sending rank of a point-to-point transfer.
        source_rank: Option<i64>,
        /// Receiving rank of a point-to-point transfer.
        destination_rank: Option<i64>,
        /// Sequence number in the group.
        sequence: Option<i64>,
        /// Identifier of the communicator's operation.
        comms_id: Option<u64>,
        /// Whether the call returned before completion.
        is_async: Option<bool>,
    }
    derived {}
}
