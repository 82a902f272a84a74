//! Calls of the CUDA runtime and driver.

use super::callbacks::{driver, runtime};
use super::reader::{Builder, thread_of};
use super::source::sources;
use crate::schema::LaunchRow;
use crate::sqlite::cells::Cells;

sources! {
    calls;
    START = "start" Required,
    END = "end" Required,
    CALLBACK = "cbid" Usual,
    PROCESS = "processId" Usual,
    THREAD = "threadId" Usual,
    CORRELATION = "correlationId" Usual,
    RETURN_VALUE = "returnValue" Usual,
}

calls!(RUNTIME: "CUPTI_ACTIVITY_KIND_RUNTIME", launches, push_runtime);
calls!(DRIVER: "CUPTI_ACTIVITY_KIND_DRIVER", launches, push_driver);

fn push_runtime(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
    push(builder, cells, "cuda_runtime", runtime)
}

fn push_driver(builder: &mut Builder<'_>, cells: &mut Cells<'_, '_>) -> bool {
    push(builder, cells, "cuda_driver", driver)
}

fn push(
    builder: &mut Builder<'_>,
    cells: &mut Cells<'_, '_>,
    category: &str,
    function: fn(i32) -> Option<&'static str>,
) -> bool {
    let Some((start_ns, dur_ns)) = cells.extent(START, END) else { return false };
    let callback_id = cells.small(CALLBACK);
    let name = callback_id.map(|id| match function(id) {
        Some(name) => builder.symbols.intern(name),
        None => builder.symbols.intern(&format!("{category} function {id}")),
    });
    let thread = cells.int(THREAD).map(thread_of);
    let track = builder.track(cells.int(PROCESS), thread);
    let row = LaunchRow {
        row: cells.number,
        name,
        category: Some(builder.symbols.intern(category)),
        track,
        start_ns,
        dur_ns,
        correlation: cells.correlation(CORRELATION),
        callback_id,
        error: cells.small(RETURN_VALUE).filter(|&code| code != 0),
        ..Default::default()
    };
    builder.tables.launches.push(row);
    true
}
