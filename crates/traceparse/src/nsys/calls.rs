//! Calls of the CUDA runtime and driver.

use super::builder::Builder;
use super::cells::Cells;
use super::source::source;
use crate::schema::{LaunchRow, Tables};

source! {
    /// Calls of the runtime and of the driver; one table holds both.
    SOURCE: "CUPTI_ACTIVITY_KIND_RUNTIME", launches, Cuda, push;
    START = "start" Required,
    END = "end" Required,
    EVENT_CLASS = "eventClass" Usual for [category],
    GLOBAL_TID = "globalTid" Usual,
    CORRELATION = "correlationId" Usual,
    NAME = "nameId" Usual for [name api_version],
    RETURN_VALUE = "returnValue" Usual for [error],
}

/// Class of driver calls (`ENUM_NSYS_EVENT_CLASS`); runtime calls are 0.
const DRIVER: i64 = 1;

fn push(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>, tables: &mut Tables) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(START, END) else { return false };
    let correlation = cells.correlation(CORRELATION);
    if let Some(launching) = &builder.context.launching {
        let pid = builder.pid(cells.int(GLOBAL_TID));
        if !launching.has_work(pid, correlation) {
            return true;
        }
    }
    let name = builder.usual_string(cells, NAME).map(|name| builder.api_name(name));
    let keeps_category = builder.context.keeps.call_category;
    let category = match cells.int(EVENT_CLASS) {
        _ if !keeps_category => None,
        Some(0) => Some(builder.label("cuda_runtime")),
        Some(DRIVER) => Some(builder.label("cuda_driver")),
        other => other.map(|code| builder.coded("call class", code, |code| format!("event class {code}"))),
    };
    let row = LaunchRow {
        row: cells.number,
        name: name.map(|(name, _)| name),
        api_version: name.and_then(|(_, version)| version).filter(|_| builder.context.keeps.api_version),
        category,
        track: builder.tracks.thread(cells.int(GLOBAL_TID)),
        start_ns,
        dur_ns,
        correlation,
        error: cells.small(RETURN_VALUE).filter(|&code| code != 0),
        ..Default::default()
    };
    tables.launches.push(row);
    true
}
