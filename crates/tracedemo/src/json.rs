//! The text of a trace on its way out, and what it holds besides its steps: header, metadata, root frames.

use std::io::{self, Write};

use crate::event::{Hole, Ident, Phase, Record, Shape, Template, list, quoted};
use crate::gpu::{GPUS, device_properties};
use crate::job::Rng;
use crate::layout::Frame;
use crate::ledger::{EventKind, Ledger};
use crate::library::{Group, Library, Process, Stream, Thread};
use crate::options::{DemoOptions, Layout};
use crate::timeline::{MOVED, Records};

/// Text of a trace on its way out.
pub(crate) struct Sink<'a, W: Write> {
    out: &'a mut W,
    layout: Layout,
    buffer: Vec<u8>,
    written: u64,
    is_first: bool,
    event_index: i64,
}

impl<'a, W: Write> Sink<'a, W> {
    /// An empty sink.
    pub(crate) fn new(out: &'a mut W, layout: Layout) -> Self {
        Self { out, layout, buffer: Vec::new(), written: 0, is_first: true, event_index: 0 }
    }

    /// Adds text that is no event.
    pub(crate) fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn event(&mut self, template: &Template, record: &Record) {
        if !self.is_first {
            self.buffer.extend_from_slice(self.layout.separator().as_bytes());
        }
        self.is_first = false;
        template.render(&mut self.buffer, record, &mut self.event_index);
    }

    /// Writes an event that has no template in the library.
    pub(crate) fn single(&mut self, shape: &Shape, start_ns: i64, dur_ns: i64, values: [i64; 3]) {
        let template = self.layout.template(shape);
        self.event(&template, &Record { template: 0, start_ns, dur_ns, values });
    }

    /// Writes the records of a step.
    pub(crate) fn records(&mut self, library: &Library, records: &Records) {
        for record in records.in_order().filter(|record| record.template != MOVED) {
            self.event(&library.templates[record.template as usize], record);
        }
    }

    /// Bytes handed on so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Hands on what is left.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.out.flush()
    }

    /// Hands on the text so far.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Python id of the frame that everything is called from, one of [`roots`].
pub(crate) const PYTHON_ROOT: i64 = 2;
/// First Python id that is none of [`roots`].
pub(crate) const FIRST_PYTHON_ID: i64 = 6;

/// The keys around the events.
pub(crate) fn frame(options: &DemoOptions, base_time_ns: i64) -> Frame {
    let mut rng = Rng::new(options.seed, 0x1d + u64::from(options.rank));
    let trace_id = format!("{:016X}{:016X}", rng.next(), rng.next());
    let host = format!("node{:02}", options.rank / GPUS);
    let mut before = vec![
        ("schemaVersion", 1.to_string()),
        ("deviceProperties", device_properties(GPUS)),
        ("cupti_version", 26.to_string()),
        ("cuda_runtime_version", 12080.to_string()),
        ("cuda_driver_version", 12080.to_string()),
    ];
    if options.ranks > 1 {
        let mut groups = vec![group(Group::of_all(options.ranks))];
        if options.ranks >= GPUS {
            groups.push(group(Group::of_host(options.rank, options.ranks)));
        }
        before.push((
            "distributedInfo",
            format!(
                "{{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}, \"pg_count\": {}, \
                 \"pg_config\": [{}], \"nccl_version\": \"2.27.5\"}}",
                options.rank,
                options.ranks,
                groups.len(),
                groups.join(", ")
            ),
        ));
    }
    for flag in ["record_shapes", "with_stack", "profile_memory", "with_modules"] {
        before.push((flag, 1.to_string()));
    }
    before.push(("trace_id", quoted(&trace_id)));
    before.push(("host_name", quoted(&host)));
    before.push(("displayTimeUnit", quoted("ms")));
    before.push(("baseTimeNanoseconds", base_time_ns.to_string()));
    let name = format!("rank{}.pt.trace.json", options.rank);
    Frame { before, after: vec![("traceName", quoted(&name))] }
}

fn group(group: Group) -> String {
    format!(
        "{{\"pg_name\": \"{}\", \"pg_desc\": \"{}\", \"backend_config\": \"cuda:nccl\", \"pg_size\": {}, \
         \"ranks\": {}}}",
        group.number,
        group.description(),
        group.size,
        list(group.ranks())
    )
}

/// Frames that last as long as the trace: the program's on the main thread and the loader's on another.
pub(crate) fn roots<W: Write>(
    sink: &mut Sink<'_, W>,
    ledger: &mut Ledger,
    process: Process,
    window: (i64, i64),
) {
    let frames: [(Thread, &str, i64, Option<i64>); 5] = [
        (Thread::Main, "train.py(201): <module>", 1, None),
        (Thread::Main, "train.py(163): main", PYTHON_ROOT, Some(1)),
        (Thread::PinMemory, "threading.py(1012): _bootstrap", 3, None),
        (Thread::PinMemory, "threading.py(1041): _bootstrap_inner", 4, Some(3)),
        (Thread::PinMemory, "torch/utils/data/_utils/pin_memory.py(18): _pin_memory_loop", 5, Some(4)),
    ];
    for (thread, name, id, parent) in frames {
        let parent = parent.map_or_else(|| "null".to_owned(), |parent: i64| parent.to_string());
        let shape = Shape::slice("python_function", name, process.pid, process.tid(thread))
            .json("Python parent id", parent)
            .json("Python id", id)
            .hole("Ev Idx", Hole::EventIndex);
        sink.single(&shape, window.0 + id, window.1 - window.0 - 2 * id, [0; 3]);
        ledger.count(EventKind::Python, 1);
    }
}

/// Names, labels and sort order of processes and threads.
pub(crate) fn metadata<W: Write>(sink: &mut Sink<'_, W>, ledger: &mut Ledger, process: Process, at_ns: i64) {
    /// Kineto labels that many GPUs, whether they exist or not.
    const LABELLED_GPUS: i64 = 16;
    let mut shapes = Vec::new();
    let mut label = |pid: i64, label: &str, sort_index: i64| {
        let (pid, tid) = (Ident::Int(pid), Ident::Int(0));
        shapes.push(Shape::metadata("process_name", pid, tid, "name", quoted("python3")));
        shapes.push(Shape::metadata("process_labels", pid, tid, "labels", quoted(label)));
        shapes.push(Shape::metadata("process_sort_index", pid, tid, "sort_index", sort_index.to_string()));
    };
    label(process.pid, "CPU", process.pid);
    for gpu in 0..LABELLED_GPUS {
        label(gpu, &format!("GPU {gpu}"), 5_000_000 + gpu);
    }
    let threads = [Thread::Main, Thread::Autograd, Thread::Watchdog, Thread::PinMemory];
    let threads = threads.map(|thread| process.tid(thread));
    let streams = Stream::ALL.map(|stream| (process.device, stream.id(), format!("stream {} ", stream.id())));
    let threads = threads.map(|tid| (process.pid, tid, format!("thread {tid} (python3)")));
    for (pid, tid, name) in streams.into_iter().chain(threads) {
        let (pid, sort_index) = (Ident::Int(pid), tid.to_string());
        shapes.push(Shape::metadata("thread_name", pid, Ident::Int(tid), "name", quoted(&name)));
        shapes.push(Shape::metadata("thread_sort_index", pid, Ident::Int(tid), "sort_index", sort_index));
    }
    ledger.count(EventKind::Metadata, shapes.len() as u64);
    for shape in shapes {
        sink.single(&shape, at_ns, 0, [0; 3]);
    }
}

/// The events with which Kineto ends a trace.
pub(crate) fn closing<W: Write>(sink: &mut Sink<'_, W>, ledger: &mut Ledger, window: (i64, i64)) {
    let profiler = Ident::Text("PyTorch Profiler");
    let span = Shape {
        pid: Ident::Text("Spans"),
        tid: profiler,
        ..Shape::slice("Trace", "PyTorch Profiler (0)", 0, 0)
    };
    sink.single(&span.json("Op count", 0), window.0, window.1 - window.0, [0; 3]);
    ledger.count(EventKind::Span, 1);
    let (pid, tid) = (Ident::Text("Spans"), Ident::Int(0));
    let sort = Shape::metadata("process_sort_index", pid, tid, "sort_index", "536870912".to_owned());
    sink.single(&sort, window.0, 0, [0; 3]);
    ledger.count(EventKind::Metadata, 1);
    for (name, pid, tid, at_ns) in [
        ("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", window.0),
        ("Record Window End", "", "", window.1 + 4_212_345),
    ] {
        let (pid, tid, phase) = (Ident::Text(pid), Ident::Text(tid), Phase::Instant("g"));
        sink.single(&Shape { phase, pid, tid, ..Shape::slice("", name, 0, 0) }, at_ns, 0, [0; 3]);
        ledger.count(EventKind::Instant, 1);
    }
}
