//! Calls of the CUDA runtime and driver, and synchronisations.

use super::callbacks::{driver, runtime};
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::labels::NO_ID;
use crate::formats::sqlite::source::columns;
use crate::schema::{LaunchRow, SyncRow, Tables};

columns! { Call {
    START = "start" Required,
    END = "end" Required,
    CALLBACK = "cbid" Usual,
    PROCESS = "processId" Usual,
    THREAD = "threadId" Usual,
    CORRELATION = "correlationId" Usual,
    RETURN_VALUE = "returnValue" Usual,
} }

pub(super) static RUNTIME: Source =
    Source::new("CUPTI_ACTIVITY_KIND_RUNTIME", "launches", (), Call::ALL, push_runtime);
pub(super) static DRIVER: Source =
    Source::new("CUPTI_ACTIVITY_KIND_DRIVER", "launches", (), Call::ALL, push_driver);

fn push_runtime(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    push_call(builder, cells, tables, "cuda_runtime", runtime)
}

fn push_driver(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    push_call(builder, cells, tables, "cuda_driver", driver)
}

fn push_call(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    category: &'static str,
    function: fn(i32) -> Option<&'static str>,
) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Call::START, Call::END) else { return false };
    let callback_id = cells.small(Call::CALLBACK);
    let name = callback_id.map(|id| {
        let unknown = |id| format!("{category} function {id}");
        builder.coded(category, id.into(), |_| function(id).map_or_else(|| unknown(id), str::to_owned))
    });
    let thread = cells.int(Call::THREAD).map(thread_of);
    let track = builder.tracks.of(cells.int(Call::PROCESS), thread);
    let row = LaunchRow {
        row: cells.number,
        name,
        category: Some(builder.label(category)),
        track,
        start_ns,
        dur_ns,
        correlation: cells.correlation(Call::CORRELATION),
        callback_id,
        error: cells.small(Call::RETURN_VALUE).filter(|&code| code != 0),
        ..Default::default()
    };
    tables.launches.push(row);
    true
}

/// A thread id: 32 bits without a sign, which older versions store with one.
fn thread_of(id: i64) -> i64 {
    id & i64::from(u32::MAX)
}

columns! { Sync {
    START = "start" Required,
    END = "end" Required,
    KIND = "type" Usual,
    STREAM = "streamId" Usual,
    CORRELATION = "correlationId" Usual,
    EVENT = "cudaEventId" Usual,
} }

pub(super) static SYNCS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "syncs", (), Sync::ALL, push_sync);

fn push_sync(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Sync::START, Sync::END) else { return false };
    let kind = cells.int(Sync::KIND).map(|code| builder.sync_kind(code));
    // Ids are unsigned; a missing one may stand as -1.
    let id = |value: Option<i64>| value.filter(|&id| id != NO_ID && id >= 0);
    let row = SyncRow {
        row: cells.number,
        name: kind,
        category: Some(builder.label("cuda_sync")),
        pid: builder.recorder.pid,
        stream: id(cells.int(Sync::STREAM)),
        start_ns,
        dur_ns,
        correlation: cells.correlation(Sync::CORRELATION),
        kind,
        event_id: id(cells.int(Sync::EVENT)),
        ..Default::default()
    };
    tables.syncs.push(row);
    true
}
