//! The text of a trace on its way out, and what it holds besides its steps: header, metadata, root frames.

use std::io::{self, Write};

use crate::event::{Hole, KINDS, Phase, Record, Shape, Template, list, quoted};
use crate::gpu::{GPUS, device_properties};
use crate::job::Rng;
use crate::library::{Group, Library, Process, Stream, Thread};
use crate::options::{DemoOptions, Layout};
use crate::timeline::{MOVED, PYTHON_ROOT, Records};
use crate::truth::Truth;

/// Text of a trace on its way out.
pub(crate) struct Sink<'a, W: Write> {
    out: &'a mut W,
    layout: Layout,
    templates: Vec<Template>,
    buffer: Vec<u8>,
    written: u64,
    event_index: i64,
    is_first: bool,
    /// Events of each of the [`KINDS`].
    counts: [u64; KINDS.len()],
}

impl<'a, W: Write> Sink<'a, W> {
    /// An empty sink for the events of a library.
    pub(crate) fn new(out: &'a mut W, layout: Layout, library: &Library) -> Self {
        let templates = library.shapes().into_iter().map(|shape| layout.template(shape)).collect();
        let (buffer, counts) = (Vec::new(), [0; KINDS.len()]);
        Self { out, layout, templates, buffer, written: 0, event_index: 0, is_first: true, counts }
    }

    /// Adds text that is no event.
    pub(crate) fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// Writes an event that is not in the library.
    fn single(&mut self, shape: &Shape, start_ns: i64, dur_ns: i64) {
        self.templates.push(self.layout.template(shape));
        self.event(&Record { shape: self.templates.len() as u32 - 1, start_ns, dur_ns, values: [0; 3] });
        self.templates.pop();
    }

    fn event(&mut self, record: &Record) {
        let template = &self.templates[record.shape as usize];
        if !self.is_first {
            self.buffer.extend_from_slice(self.layout.separator().as_bytes());
        }
        self.is_first = false;
        self.counts[template.kind] += 1;
        template.render(&mut self.buffer, record, &mut self.event_index);
    }

    /// Writes the records of a step and hands on the text so far; returns the bytes handed on.
    pub(crate) fn records(&mut self, records: &Records) -> io::Result<u64> {
        records.in_order().filter(|record| record.shape != MOVED).for_each(|record| self.event(record));
        self.flush()
    }

    /// Hands on the text so far; returns the bytes handed on.
    pub(crate) fn flush(&mut self) -> io::Result<u64> {
        self.out.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(self.written)
    }

    /// Hands on what is left, and adds to the truth what was written.
    pub(crate) fn finish(mut self, truth: &mut Truth) -> io::Result<()> {
        truth.json_bytes = self.flush()?;
        truth.events = self.counts.iter().sum();
        for ((kind, table), count) in KINDS.into_iter().zip(self.counts) {
            truth.events_by_kind.insert(kind, count);
            *truth.tables.entry(table).or_default() += count;
        }
        self.out.flush()
    }

    /// Frames that last as long as the trace: the program's on the main thread and the loader's on another.
    pub(crate) fn roots(&mut self, process: Process, window: (i64, i64)) {
        for (thread, name, id, parent) in [
            (Thread::Main, "train.py(201): <module>", 1, "null"),
            (Thread::Main, "train.py(163): main", PYTHON_ROOT, "1"),
            (Thread::PinMemory, "threading.py(1012): _bootstrap", 3, "null"),
            (Thread::PinMemory, "threading.py(1041): _bootstrap_inner", 4, "3"),
            (Thread::PinMemory, "torch/utils/data/_utils/pin_memory.py(18): _pin_memory_loop", 5, "4"),
        ] {
            let shape = Shape::slice("python_function", name, process.pid, process.tid(thread))
                .json("Python parent id", parent)
                .json("Python id", id)
                .hole("Ev Idx", Hole::EventIndex);
            self.single(&shape, window.0 + id, window.1 - window.0 - 2 * id);
        }
    }

    /// Names, labels and sort order of processes and threads.
    pub(crate) fn metadata(&mut self, process: Process, at_ns: i64) {
        /// Kineto labels that many GPUs, whether they exist or not.
        const LABELLED_GPUS: i64 = 16;
        let gpus = (0..LABELLED_GPUS).map(|gpu| (gpu, format!("GPU {gpu}"), 5_000_000 + gpu));
        for (pid, label, sort_index) in [(process.pid, "CPU".to_owned(), process.pid)].into_iter().chain(gpus)
        {
            let event = |name, key, value| metadata(name, pid, 0, key, value);
            self.single(&event("process_name", "name", quoted("python3")), at_ns, 0);
            self.single(&event("process_labels", "labels", quoted(&label)), at_ns, 0);
            self.single(&event("process_sort_index", "sort_index", sort_index.to_string()), at_ns, 0);
        }
        let threads = Thread::ALL.map(|thread| process.tid(thread));
        let threads = threads.map(|tid| (process.pid, tid, format!("thread {tid} (python3)")));
        let streams = Stream::ALL.map(Stream::id).map(|id| (process.device, id, format!("stream {id} ")));
        for (pid, tid, name) in streams.into_iter().chain(threads) {
            self.single(&metadata("thread_name", pid, tid, "name", quoted(&name)), at_ns, 0);
            self.single(&metadata("thread_sort_index", pid, tid, "sort_index", tid.to_string()), at_ns, 0);
        }
    }

    /// The events with which Kineto ends a trace.
    pub(crate) fn closing(&mut self, window: (i64, i64)) {
        let span = Shape::slice("Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler");
        self.single(&span.json("Op count", 0), window.0, window.1 - window.0);
        let sort = Shape::slice("", "process_sort_index", "Spans", 0).json("sort_index", 536_870_912);
        self.single(&Shape { phase: Phase::Metadata, ..sort }, window.0, 0);
        for (name, pid, tid, at_ns) in [
            ("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", window.0),
            ("Record Window End", "", "", window.1 + 4_212_345),
        ] {
            let instant = Shape { phase: Phase::GlobalInstant, ..Shape::slice("", name, pid, tid) };
            self.single(&instant, at_ns, 0);
        }
    }
}

fn metadata(name: &str, pid: i64, tid: i64, key: &'static str, value: String) -> Shape {
    Shape { phase: Phase::Metadata, ..Shape::slice("", name, pid, tid).json(key, value) }
}

/// The keys before the events.
pub(crate) fn header_keys(options: &DemoOptions, base_time_ns: i64) -> Vec<(&'static str, String)> {
    let DemoOptions { rank, ranks, seed, .. } = *options;
    let mut rng = Rng::new(seed, 0x1d + u64::from(rank));
    let mut keys = vec![
        ("schemaVersion", 1.to_string()),
        ("deviceProperties", device_properties(GPUS)),
        ("cupti_version", 26.to_string()),
        ("cuda_runtime_version", 12080.to_string()),
        ("cuda_driver_version", 12080.to_string()),
    ];
    if ranks > 1 {
        let of_host = (ranks >= GPUS).then(|| Group::of_host(rank, ranks));
        let groups: Vec<_> = [Group::of_all(ranks)].into_iter().chain(of_host).map(group).collect();
        let info = format!(
            "{{\"backend\": \"nccl\", \"rank\": {rank}, \"world_size\": {ranks}, \"pg_count\": {}, \
             \"pg_config\": {}, \"nccl_version\": \"2.27.5\"}}",
            groups.len(),
            list(&groups)
        );
        keys.push(("distributedInfo", info));
    }
    let flags = ["record_shapes", "with_stack", "profile_memory", "with_modules"];
    keys.extend(flags.map(|flag| (flag, 1.to_string())));
    keys.push(("trace_id", format!("\"{:016X}{:016X}\"", rng.next(), rng.next())));
    keys.push(("host_name", format!("\"node{:02}\"", rank / GPUS)));
    keys.push(("displayTimeUnit", quoted("ms")));
    keys.push(("baseTimeNanoseconds", base_time_ns.to_string()));
    keys
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
