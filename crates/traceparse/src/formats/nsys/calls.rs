//! Calls of the CUDA runtime and driver, synchronisations, and records of CUDA events.

use super::capture::Feature;
use super::recording::{Builder, Source};
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::labels::NO_ID;
use crate::formats::sqlite::source::columns;
use crate::schema::{LaunchRow, Symbol, SyncRow, Tables};
use crate::stats::Code;
use crate::time::TIMES_NS;

columns! { Call {
    START = "start" Required,
    END = "end" Required,
    EVENT_CLASS = "eventClass" Usual for [category],
    GLOBAL_TID = "globalTid" Usual,
    CORRELATION = "correlationId" Usual,
    NAME = "nameId" Usual for [name api_version],
    RETURN_VALUE = "returnValue" Usual for [error],
} }

/// Calls of the runtime and of the driver; one table holds both.
pub(super) static CALLS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_RUNTIME", "launches", Feature::Cuda, Call::ALL, push_call);

/// Class of driver calls (`ENUM_NSYS_EVENT_CLASS`); runtime calls are 0.
const DRIVER: i64 = 1;

fn push_call(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Call::START, Call::END) else { return false };
    let correlation = cells.correlation(Call::CORRELATION);
    if let Some(launching) = &builder.recorder.launching {
        let pid = builder.pid(cells.int(Call::GLOBAL_TID));
        if !launching.has_work(pid, correlation) {
            return true;
        }
    }
    let name = builder.usual_string(cells, Call::NAME).map(|name| api_name(builder, name));
    let keeps_category = builder.recorder.wanted.call_category;
    let category = match cells.int(Call::EVENT_CLASS) {
        _ if !keeps_category => None,
        Some(0) => Some(builder.label("cuda_runtime")),
        Some(DRIVER) => Some(builder.label("cuda_driver")),
        other => other.map(|code| builder.coded("call class", code, |code| format!("event class {code}"))),
    };
    let row = LaunchRow {
        row: cells.number,
        name: name.map(|(name, _)| name),
        api_version: name.and_then(|(_, version)| version).filter(|_| builder.recorder.wanted.api_version),
        category,
        track: builder.thread_track(cells.int(Call::GLOBAL_TID)),
        start_ns,
        dur_ns,
        correlation,
        error: cells.small(Call::RETURN_VALUE).filter(|&code| code != 0),
        ..Default::default()
    };
    tables.launches.push(row);
    true
}

/// The name of an API function without the version that nsys appends, and the version.
#[inline]
fn api_name(builder: &mut Builder<'_, '_>, name: Symbol) -> (Symbol, Option<i32>) {
    let Builder { thread, texts, .. } = builder;
    *thread.api_names.entry(name).or_insert_with(|| {
        let split =
            texts.derive(name, |name| split_version(name).map(|(base, version)| (base.to_owned(), version)));
        split.map_or((name, None), |(base, version)| (base, Some(version)))
    })
}

/// `cudaLaunchKernel_v7000` is version 7000; fewer than four digits are part of the name.
fn split_version(name: &str) -> Option<(&str, i32)> {
    let (base, digits) = name.rsplit_once("_v")?;
    let is_version = digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| is_version && !base.is_empty()).map(|version| (base, version))
}

columns! { Sync {
    START = "start" Required,
    END = "end" Required,
    DEVICE = "deviceId" Usual,
    STREAM = "streamId" Usual,
    CORRELATION = "correlationId" Usual,
    GLOBAL_PID = "globalPid" Usual,
    KIND = "syncType" Usual,
    EVENT = "eventId" Usual,
    EVENT_SYNC = "eventSyncId" Newer,
} }

/// Synchronisation calls.
pub(super) static SYNCS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "syncs", Feature::Cuda, Sync::ALL, push_sync);

fn push_sync(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(Sync::START, Sync::END) else { return false };
    let kind = cells.int(Sync::KIND).map(|code| builder.sync_kind(code));
    let pid = builder.pid(cells.int(Sync::GLOBAL_PID));
    let awaited = cells.int(Sync::EVENT_SYNC).and_then(|id| builder.recorder.events.record(pid, id));
    let row = SyncRow {
        row: cells.number,
        name: kind,
        category: Some(builder.label("cuda_sync")),
        pid,
        device: cells.small(Sync::DEVICE).map(|device| builder.recorder.machine.gpu(pid, device)),
        stream: cells.int(Sync::STREAM).filter(|&id| id != NO_ID),
        start_ns,
        dur_ns,
        correlation: cells.correlation(Sync::CORRELATION),
        kind,
        event_id: cells.int(Sync::EVENT).filter(|&id| id != NO_ID),
        wait_stream: awaited.map(|record| record.stream),
        wait_correlation: awaited.map(|record| record.correlation),
        external_id: None,
    };
    tables.syncs.push(row);
    true
}

columns! { Event {
    AT = "timestamp" Newer,
    DEVICE = "deviceId" Usual,
    STREAM = "streamId" Usual,
    CORRELATION = "correlationId" Usual,
    GLOBAL_PID = "globalPid" Usual,
    EVENT = "eventId" Usual,
} }

/// Records of CUDA events.
pub(super) static EVENTS: Source =
    Source::new("CUPTI_ACTIVITY_KIND_CUDA_EVENT", "syncs", Feature::Cuda, Event::ALL, push_event);

fn push_event(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let pid = builder.pid(cells.int(Event::GLOBAL_PID));
    let correlation = cells.correlation(Event::CORRELATION);
    // 0 is not collected: the call that recorded the event has the time at which it did.
    let call = correlation.and_then(|id| builder.recorder.events.call_start(pid, id));
    let Some(start_ns) =
        cells.int(Event::AT).filter(|&at| at != 0).or(call).filter(|at| TIMES_NS.contains(at))
    else {
        cells.note(Code::MissingTime);
        return false;
    };
    let kind = builder.label("Event record");
    let row = SyncRow {
        row: cells.number,
        name: Some(kind),
        category: Some(builder.label("cuda_event")),
        pid,
        device: cells.small(Event::DEVICE).map(|device| builder.recorder.machine.gpu(pid, device)),
        stream: cells.int(Event::STREAM),
        start_ns,
        correlation,
        kind: Some(kind),
        event_id: cells.int(Event::EVENT),
        ..Default::default()
    };
    tables.syncs.push(row);
    true
}

#[cfg(test)]
mod tests {
    use super::split_version;

    #[test]
    fn versions_have_four_digits_or_more() {
        assert_eq!(split_version("cudaLaunchKernel_v7000"), Some(("cudaLaunchKernel", 7000)));
        assert_eq!(split_version("cudaLaunchKernelExC_v11060"), Some(("cudaLaunchKernelExC", 11060)));
        assert_eq!(split_version("cuMemAlloc_v2"), None);
        assert_eq!(split_version("f_v70a0"), None);
        assert_eq!(split_version("_v7000"), None);
    }
}
