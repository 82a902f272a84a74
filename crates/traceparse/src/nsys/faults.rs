//! Page faults of unified memory.

/// Faults of the host.
pub(super) mod on_cpu {
    use crate::nsys::builder::Builder;
    use crate::nsys::cells::Cells;
    use crate::nsys::source::source;
    use crate::schema::{SpanRow, Tables};

    source! {
        /// Faults of the host.
        SOURCE: "CUDA_UM_CPU_PAGE_FAULT_EVENTS", spans, Any, push;
        AT = "start" Required,
        GLOBAL_PID = "globalPid" Usual,
        ADDRESS = "address" Usual,
        INSTRUCTION = "CpuInstruction" Usual,
    }

    fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
        let Some(start_ns) = cells.start(AT) else { return false };
        let row = SpanRow {
            row: cells.number,
            name: builder.string(cells, INSTRUCTION),
            category: Some(builder.label("um_cpu_page_fault")),
            kind: builder.label("i"),
            track: builder.tracks.process(cells.int(GLOBAL_PID)),
            start_ns,
            ..Default::default()
        };
        tables.spans.push(row);
        if let Some(address) = cells.int(ADDRESS) {
            builder.argument(cells, tables, "virtual_address", address);
        }
        true
    }
}

/// Faults of a GPU, which come in groups.
pub(super) mod on_gpu {
    use crate::nsys::builder::Builder;
    use crate::nsys::cells::Cells;
    use crate::nsys::source::source;
    use crate::schema::{SpanRow, Tables};

    source! {
        /// Groups of faults of a GPU.
        SOURCE: "CUDA_UM_GPU_PAGE_FAULT_EVENTS", spans, Any, push;
        START = "start" Required,
        END = "end" Required,
        GLOBAL_PID = "globalPid" Usual,
        DEVICE = "deviceId" Usual,
        ADDRESS = "address" Usual,
        COUNT = "numberOfPageFaults" Usual,
    }

    fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
        let Some((start_ns, dur_ns)) = cells.extent(START, END) else { return false };
        let row = SpanRow {
            row: cells.number,
            category: Some(builder.label("um_gpu_page_fault")),
            kind: builder.label("X"),
            track: builder.tracks.process(cells.int(GLOBAL_PID)),
            start_ns,
            dur_ns,
            ..Default::default()
        };
        tables.spans.push(row);
        let numbers = [(DEVICE, "device"), (ADDRESS, "virtual_address"), (COUNT, "page_faults")];
        for (cell, key) in numbers {
            if let Some(value) = cells.int(cell) {
                builder.argument(cells, tables, key, value);
            }
        }
        true
    }
}
