//! Tables of moments, counters and whatever else an event may be.

use super::symbols::{Symbol, SymbolTable};
use super::table::{Table, table};

table! {
    /// An allocation, a free or an out-of-memory event of the caching allocator. In nsys databases, of the
    /// device's own allocator.
    MemoryEvents, MemoryRow, "memory";
    recorded {
        row, name, track, start_ns,
        /// Address of the block.
        address: Option<u64>,
        /// Bytes allocated, negative when freed.
        bytes: Option<i64>,
        /// Bytes allocated on the device after the event.
        total_allocated_bytes: Option<i64>,
        /// Bytes reserved on the device after the event.
        total_reserved_bytes: Option<i64>,
        /// Kind of memory, such as `Device` or `Managed`, if recorded.
        memory_kind: Option<Symbol>,
        /// PyTorch's device type: 0 CPU, 1 CUDA, 6 HIP, 12 XPU, 19 MTIA, 20 PrivateUse1.
        device_type: Option<i32>,
        /// Device index; -1 for the CPU.
        device_id: Option<i32>,
        /// Call stack as recorded.
        call_stack: Option<Symbol>,
        event_index,
    }
    derived { pid, tid, step, }
}

table! {
    /// One value of a counter sample (GPU metrics, for example) or of a hardware-counter range. An event with
    /// several values has several rows.
    Counters, CounterRow, "counters";
    recorded {
        row, name,
        /// Category as recorded (`cat`). Hardware counters have their own category.
        category: Option<Symbol>,
        track, device, start_ns, dur_ns,
        /// Name of the value inside the event.
        counter: Symbol,
        /// The value. Null if it is not a number or is impossible for a GPU.
        value: Option<f64>,
        /// Unit of a sampled GPU metric from its name, such as `%` or `MHz`. Null if the name has no unit.
        unit: Option<Symbol>,
    }
    derived { pid, tid, }
}

table! {
    /// An instant event other than a memory event.
    Instants, InstantRow, "instants";
    recorded {
        row, name, category,
        /// `s` as recorded: t thread, p process, g global.
        scope: Option<Symbol>,
        track, start_ns,
    }
    derived { pid, tid, }
}

table! {
    /// One end of an arrow between two events.
    Flows, FlowRow, "flows";
    recorded {
        row,
        /// Flow id. The ends of an arrow share id and category.
        id: Option<i64> as id,
        name, category,
        /// `s` start, `t` step, `f` end.
        kind: Symbol,
        track, start_ns,
    }
    derived { pid, tid, }
}

impl Flows {
    /// The categories of arrows to GPU work of PyTorch before Kineto, and of torch_npu.
    pub(crate) const TO_WORK: [&'static str; 2] = ["cpu_to_cuda", "async_npu"];

    /// The ends of one kind of arrows of some `categories`, by their indices.
    pub(crate) fn ends(
        &self,
        symbols: &SymbolTable,
        categories: [&str; 2],
        kind: &str,
    ) -> impl Iterator<Item = usize> {
        let kind = symbols.find(kind);
        let categories = categories.map(|text| symbols.find(text));
        let is_of_category = move |found: Option<Symbol>| found.is_some() && categories.contains(&found);
        let rows = if kind.is_some() { self.len() } else { 0 };
        (0..rows).filter(move |&flow| self.kind.get(flow) == kind && is_of_category(self.category.get(flow)))
    }
}

table! {
    /// A slice that no other table contains: profiler spans, profiling overhead, calls of the operating
    /// system and of libraries other than CUDA, unknown categories.
    Spans, SpanRow, "spans";
    recorded {
        row, name, category,
        /// `ph` as recorded.
        kind: Symbol,
        track, start_ns, dur_ns, correlation, external_id,
        /// Id of the CUDA graph node that the event creates.
        graph_node_id: Option<u64> as id,
        /// Id of the node that was cloned, if the event creates a clone of a CUDA graph node.
        original_graph_node_id: Option<u64> as id,
    }
    derived { pid, tid, }
}

table! {
    /// A metadata event: names, labels and sort order of processes and threads.
    MetadataEvents, MetadataRow, "metadata";
    recorded {
        row, name, track,
        /// Timestamp as recorded, ns.
        start_ns: Option<i64> as time,
        /// The argument, as text or as JSON.
        value: Option<Symbol>,
    }
    derived { pid, tid, }
}

table! {
    /// An argument of an event that has no column of its own.
    ExtraArgs, ExtraArgRow, "extra_args";
    recorded {
        /// `row` of the event.
        row: u32 as link,
        /// Argument name.
        key: Symbol,
        /// Value as JSON text.
        value: Symbol,
    }
    derived {}
}
