//! GPUs, and overhead of the recorder.

use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::schema::{DeviceRow, SpanRow, Tables};

columns! { Device {
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
} }

pub(super) static DEVICES: Source =
    Source::new("CUPTI_ACTIVITY_KIND_DEVICE", "devices", (), Device::ALL, push_device);

fn push_device(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some(device) = cells.small(Device::ID) else { return false };
    // 0 is not known.
    let mut known = |cell: usize| cells.int(cell).filter(|&value| value > 0);
    let (warp_size, warps_per_sm) = (known(Device::WARP), known(Device::WARPS_PER_SM));
    let compute_major = known(Device::MAJOR);
    let row = DeviceRow {
        device,
        name: None,
        total_memory_bytes: known(Device::MEMORY),
        compute_major,
        compute_minor: known(Device::MINOR).or_else(|| compute_major.map(|_| 0)),
        sm_count: known(Device::SMS),
        warp_size,
        max_threads_per_block: known(Device::THREADS_PER_BLOCK),
        max_threads_per_sm: warp_size.zip(warps_per_sm).and_then(|(a, b)| a.checked_mul(b)),
        registers_per_block: known(Device::REGISTERS_PER_BLOCK),
        registers_per_sm: known(Device::REGISTERS_PER_SM),
        shared_memory_per_block_bytes: known(Device::SHARED_PER_BLOCK),
        shared_memory_per_block_optin_bytes: None,
        shared_memory_per_sm_bytes: known(Device::SHARED_PER_SM),
    };
    let name = builder.text(cells, Device::NAME);
    tables.devices.push(DeviceRow { name, ..row });
    true
}

columns! { Overhead {
    START = "start" Required,
    END = "end" Required,
    KIND = "overheadKind" Usual,
} }

pub(super) static OVERHEADS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_OVERHEAD", "spans", (), Overhead::ALL, push_overhead);

fn overhead_name(kind: i64) -> &'static str {
    match kind {
        1 => "Driver compiler",
        0x1_0000 => "CUPTI buffer flush",
        0x2_0000 => "CUPTI instrumentation",
        0x3_0000 => "CUPTI resource",
        _ => "Unknown",
    }
}

fn push_overhead(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Overhead::START, Overhead::END) else { return false };
    let row = SpanRow {
        row: cells.number,
        name: cells.int(Overhead::KIND).map(|kind| builder.label(overhead_name(kind))),
        category: Some(builder.label("overhead")),
        kind: builder.label("X"),
        track: builder.tracks.of(None, None),
        start_ns,
        dur_ns,
        ..Default::default()
    };
    tables.spans.push(row);
    true
}
