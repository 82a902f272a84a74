//! GPUs, names of threads, and overhead of the recorder.

use super::reader::Builder;
use super::source::sources;
use crate::schema::DeviceRow;
use crate::sqlite::cells::Cells;

sources! {
    devices;
    ID = "id" Required,
    NAME = "name" Usual,
    MEMORY = "globalMemorySize" Usual,
    MAJOR = "computeCapabilityMajor" Usual,
    MINOR = "computeCapabilityMinor" Usual,
    SMS = "numMultiprocessors" Usual,
    WARP = "numThreadsPerWarp" Usual,
    WARPS_PER_SM = "maxWarpsPerMultiprocessor" Usual,
    THREADS_PER_BLOCK = "maxThreadsPerBlock" Usual,
    REGISTERS_PER_BLOCK = "maxRegistersPerBlock" Usual,
    REGISTERS_PER_SM = "maxRegistersPerMultiprocessor" Usual,
    SHARED_PER_BLOCK = "maxSharedMemoryPerBlock" Usual,
    SHARED_PER_SM = "maxSharedMemoryPerMultiprocessor" Usual,
}

devices!(DEVICES: "CUPTI_ACTIVITY_KIND_DEVICE", devices, push);

fn push(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
    let Some(device) = cells.small(ID) else { return false };
    // 0 is not known.
    let mut known = |cell: usize| cells.int(cell).filter(|&value| value > 0);
    let (warp_size, warps_per_sm) = (known(WARP), known(WARPS_PER_SM));
    let compute_major = known(MAJOR);
    let row = DeviceRow {
        device,
        name: None,
        total_memory_bytes: known(MEMORY),
        compute_major,
        compute_minor: known(MINOR).or_else(|| compute_major.map(|_| 0)),
        sm_count: known(SMS),
        warp_size,
        max_threads_per_block: known(THREADS_PER_BLOCK),
        max_threads_per_sm: warp_size.zip(warps_per_sm).and_then(|(a, b)| a.checked_mul(b)),
        registers_per_block: known(REGISTERS_PER_BLOCK),
        registers_per_sm: known(REGISTERS_PER_SM),
        shared_memory_per_block_bytes: known(SHARED_PER_BLOCK),
        shared_memory_per_block_optin_bytes: None,
        shared_memory_per_sm_bytes: known(SHARED_PER_SM),
    };
    let name = builder.text(cells, NAME);
    builder.tables.devices.push(DeviceRow { name, ..row });
    true
}

/// Overhead of the driver and of the recorder.
pub(super) mod overhead {
    use crate::nvprof::reader::Builder;
    use crate::nvprof::source::sources;
    use crate::schema::SpanRow;
    use crate::sqlite::cells::Cells;

    sources! {
        overheads;
        START = "start" Required,
        END = "end" Required,
        KIND = "overheadKind" Usual,
    }

    overheads!(SOURCE: "CUPTI_ACTIVITY_KIND_OVERHEAD", spans, push);

    fn name(kind: i64) -> &'static str {
        match kind {
            1 => "Driver compiler",
            0x1_0000 => "CUPTI buffer flush",
            0x2_0000 => "CUPTI instrumentation",
            0x3_0000 => "CUPTI resource",
            _ => "Unknown",
        }
    }

    fn push(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
        let Some((start_ns, dur_ns)) = cells.extent(START, END) else { return false };
        let row = SpanRow {
            row: cells.number,
            name: cells.int(KIND).map(|kind| builder.symbols.intern(name(kind))),
            category: Some(builder.symbols.intern("overhead")),
            kind: builder.symbols.intern("X"),
            track: builder.track(None, None),
            start_ns,
            dur_ns,
            correlation: None,
            external_id: None,
        };
        builder.tables.spans.push(row);
        true
    }
}
