//! Calls of libraries beside CUDA, their events and their markers: MPI, OpenMP, OpenACC, Vulkan, OpenGL, NvVideo,
//! and system calls.
//!
//! Each is a slice of `spans` whose category says which it is; what else is known of it stands in `extra_args`.

use super::capture::Feature;
use super::recording::{Builder, Source};
use super::spans;
use crate::formats::sqlite::cells::Cells;
use crate::formats::sqlite::source::columns;
use crate::schema::{SpanRow, Symbol, Tables};

columns! { Event {
    START = "start" Required,
    END = "end" Required,
    GLOBAL_TID = "globalTid" Usual,
} }

columns! { Named after Event {
    NAME = "nameId" Usual,
} }

columns! { Placed after Named {
    FILE = "srcFile" Usual,
    LINE = "lineNo" Usual,
} }

columns! { Text after Event {
    TEXT = "textId" Usual,
} }

columns! { Label after Text {
    CORRELATION = "correlationId" Usual,
} }

columns! { Message after Text {
    TAG = "tag" Usual,
    PEER = "remoteRank" Usual,
    BYTES = "size" Usual,
} }

columns! { Collective after Text {
    ROOT = "rootRank" Usual,
    SENT_BYTES = "size" Usual,
    RECEIVED_BYTES = "recvSize" Usual,
} }

columns! { VulkanCall after Named {
    CORRELATION = "correlationId" Usual,
    EVENT_CLASS = "eventClass" Usual,
    CONTEXT = "contextId" Usual,
} }

columns! { VulkanWork after Named {
    TEXT = "textId" Usual,
    CORRELATION = "correlationId" Usual,
    CONTEXT = "contextId" Usual,
    GPU = "gpu" Usual,
} }

columns! { Debug after Text {
    EVENT_CLASS = "eventClass" Usual,
    ID = "id" Usual,
} }

/// Declares tables of one category that differ in nothing but their names.
macro_rules! alike {
    ($columns:ident, $cell:ident: $( $source:ident = $table:literal $category:literal, )+) => { $(
        pub(super) static $source: Source =
            Source::new($table, "spans", Feature::Any, $columns::ALL, |builder, cells, tables| {
                let name = builder.string(cells, $columns::$cell);
                let Some(span) = slice(builder, cells, $category, name) else { return false };
                tables.spans.push(span);
                true
            });
    )+ };
}

alike! { Named, NAME:
    SYSTEM_CALLS = "SYSCALL" "syscall",
    OPENMP_THREADS = "OPENMP_EVENT_KIND_THREAD" "openmp",
    OPENMP_PARALLEL = "OPENMP_EVENT_KIND_PARALLEL" "openmp",
    OPENMP_SYNC_WAITS = "OPENMP_EVENT_KIND_SYNC_REGION_WAIT" "openmp",
    OPENMP_SYNCS = "OPENMP_EVENT_KIND_SYNC_REGION" "openmp",
    OPENMP_TASKS = "OPENMP_EVENT_KIND_TASK" "openmp",
    OPENMP_MASTERS = "OPENMP_EVENT_KIND_MASTER" "openmp",
    OPENMP_REDUCTIONS = "OPENMP_EVENT_KIND_REDUCTION" "openmp",
    OPENMP_TASKS_CREATED = "OPENMP_EVENT_KIND_TASK_CREATE" "openmp",
    OPENMP_TASKS_SCHEDULED = "OPENMP_EVENT_KIND_TASK_SCHEDULE" "openmp",
    OPENMP_CANCELS = "OPENMP_EVENT_KIND_CANCEL" "openmp",
    OPENMP_MUTEX_WAITS = "OPENMP_EVENT_KIND_MUTEX_WAIT" "openmp",
    OPENMP_CRITICAL = "OPENMP_EVENT_KIND_CRITICAL_SECTION" "openmp",
    OPENMP_MUTEX_RELEASES = "OPENMP_EVENT_KIND_MUTEX_RELEASED" "openmp",
    OPENMP_LOCKS_MADE = "OPENMP_EVENT_KIND_LOCK_INIT" "openmp",
    OPENMP_LOCKS_GONE = "OPENMP_EVENT_KIND_LOCK_DESTROY" "openmp",
    OPENMP_WORK = "OPENMP_EVENT_KIND_WORKSHARE" "openmp",
    OPENMP_DISPATCHES = "OPENMP_EVENT_KIND_DISPATCH" "openmp",
    OPENMP_FLUSHES = "OPENMP_EVENT_KIND_FLUSH" "openmp",
    ENCODER = "NVVIDEO_ENCODER_API" "nvvideo_encoder",
    DECODER = "NVVIDEO_DECODER_API" "nvvideo_decoder",
    JPEG = "NVVIDEO_JPEG_API" "nvvideo_jpeg",
}

alike! { Text, TEXT:
    MPI_WAITS = "MPI_START_WAIT_EVENTS" "mpi_start_wait",
    MPI_OTHERS = "MPI_OTHER_EVENTS" "mpi_other",
}

/// Declares tables of OpenACC, whose events are known by name and place in the source.
macro_rules! openacc {
    ($( $source:ident = $table:literal, )+) => { $(
        pub(super) static $source: Source =
            Source::new($table, "spans", Feature::Any, Placed::ALL, |builder, cells, tables| {
                let name = place(builder, cells);
                let Some(span) = slice(builder, cells, "openacc", name) else { return false };
                tables.spans.push(span);
                true
            });
    )+ };
}

openacc! {
    OPENACC_DATA = "CUPTI_ACTIVITY_KIND_OPENACC_DATA",
    OPENACC_LAUNCHES = "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH",
    OPENACC_OTHERS = "CUPTI_ACTIVITY_KIND_OPENACC_OTHER",
}

/// The name of an event of OpenACC, with file and line where they are recorded.
fn place(builder: &mut Builder<'_, '_>, cells: &mut Cells<'_, '_>) -> Option<Symbol> {
    let name = builder.string(cells, Named::NAME)?;
    let (Some(file), Some(line)) = (builder.string(cells, Placed::FILE), cells.int(Placed::LINE)) else {
        return Some(name);
    };
    let text = format!("{}@{}:{line}", builder.texts.text(name), builder.texts.text(file));
    Some(builder.texts.intern_clean(&text))
}

/// Labels of Vulkan: the call that opens one has its text, the call that closes it none and the same number.
pub(super) static VULKAN_MARKERS: Source =
    Source::new("VULKAN_DEBUG_API", "spans", Feature::Any, Label::ALL, |builder, cells, tables| {
        let name = builder.string(cells, Text::TEXT);
        let Some(span) = slice(builder, cells, "vulkan_marker", name) else { return false };
        tables.spans.push(SpanRow { correlation: cells.int(Label::CORRELATION), ..span });
        true
    });

/// Messages between two ranks.
pub(super) static MPI_MESSAGES: Source =
    Source::new("MPI_P2P_EVENTS", "spans", Feature::Any, Message::ALL, |builder, cells, tables| {
        let name = builder.string(cells, Text::TEXT);
        let Some(span) = slice(builder, cells, "mpi_p2p", name) else { return false };
        tables.spans.push(span);
        let details = [(Message::TAG, "tag"), (Message::PEER, "peer_rank"), (Message::BYTES, "bytes")];
        add_details(builder, cells, tables, &details);
        true
    });

/// Operations of many ranks.
pub(super) static MPI_COLLECTIVES: Source = Source::new(
    "MPI_COLLECTIVES_EVENTS",
    "spans",
    Feature::Any,
    Collective::ALL,
    |builder, cells, tables| {
        let name = builder.string(cells, Text::TEXT);
        let Some(span) = slice(builder, cells, "mpi_collective", name) else { return false };
        tables.spans.push(span);
        let details = [
            (Collective::ROOT, "root_rank"),
            (Collective::SENT_BYTES, "sent_bytes"),
            (Collective::RECEIVED_BYTES, "received_bytes"),
        ];
        add_details(builder, cells, tables, &details);
        true
    },
);

/// Calls of Vulkan.
pub(super) static VULKAN_CALLS: Source =
    Source::new("VULKAN_API", "spans", Feature::Any, VulkanCall::ALL, |builder, cells, tables| {
        let name = builder.string(cells, Named::NAME);
        let Some(span) = slice(builder, cells, "vulkan_api", name) else { return false };
        tables.spans.push(SpanRow { correlation: cells.int(VulkanCall::CORRELATION), ..span });
        let details = [(VulkanCall::EVENT_CLASS, "event_class"), (VulkanCall::CONTEXT, "context")];
        add_details(builder, cells, tables, &details);
        true
    });

/// Work of Vulkan on GPUs; what lies in a label has its text.
pub(super) static VULKAN_WORK: Source =
    Source::new("VULKAN_WORKLOAD", "spans", Feature::Any, VulkanWork::ALL, |builder, cells, tables| {
        let (category, name) = match builder.string(cells, VulkanWork::TEXT) {
            Some(text) => ("vulkan_gpu_marker", Some(text)),
            None => ("vulkan_gpu", builder.string(cells, Named::NAME)),
        };
        let Some(span) = slice(builder, cells, category, name) else { return false };
        tables.spans.push(SpanRow { correlation: cells.int(VulkanWork::CORRELATION), ..span });
        add_details(builder, cells, tables, &[(VulkanWork::CONTEXT, "context"), (VulkanWork::GPU, "gpu")]);
        true
    });

/// Groups of OpenGL's `KHR_debug`, and what else it says.
pub(super) static DEBUG: Source =
    Source::new("KHR_DEBUG_EVENTS", "spans", Feature::Any, Debug::ALL, |builder, cells, tables| {
        // A group without a text is known by its number.
        let name = builder.string(cells, Text::TEXT).or_else(|| {
            let id = cells.int(Debug::ID)?;
            Some(builder.texts.intern_clean(&id.to_string()))
        });
        let category = match cells.int(Debug::EVENT_CLASS) {
            Some(GROUP) => "opengl_khr_range",
            Some(GPU_GROUP) => "opengl_khr_gpu_range",
            _ => "opengl_khr",
        };
        let Some(span) = slice(builder, cells, category, name) else { return false };
        tables.spans.push(span);
        true
    });

/// Class of the groups that were pushed and popped, on the host.
const GROUP: i64 = 62;
/// The same on the GPU.
const GPU_GROUP: i64 = 63;

/// A slice of a thread with a name.
fn slice(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    category: &'static str,
    name: Option<Symbol>,
) -> Option<SpanRow> {
    let span = spans::slice(builder, cells, [Event::START, Event::END, Event::GLOBAL_TID], category)?;
    Some(SpanRow { name, ..span })
}

/// Adds the numbers that some cells hold.
fn add_details(
    builder: &mut Builder<'_, '_>,
    cells: &mut Cells<'_, '_>,
    tables: &mut Tables,
    details: &[(usize, &'static str)],
) {
    for &(cell, key) in details {
        if let Some(value) = cells.int(cell) {
            builder.argument(cells, tables, key, value);
        }
    }
}
