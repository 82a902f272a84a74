//! Writes the trace of one rank, step by step.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::gpu::device_properties;
use crate::layout::Frame;
use crate::ledger::EventKind;
use crate::library::{Library, Process, Stream, Thread};
use crate::model::{BuiltModel, Config, build};
use crate::options::{DemoOptions, Layout};
use crate::rng::Rng;
use crate::schedule::Schedule;
use crate::shape::{Ident, Phase, Shape, list, quoted};
use crate::template::{Hole, Record, Template};
use crate::timeline::{MOVED, Start, Timeline, Variation};
use crate::truth::Truth;

/// Kineto counts from multiples of this many seconds, about three months.
const BASE_TIME_NS: i64 = 224 * 7_889_238 * 1_000_000_000;
/// When the job begins, after the base time: 20 March 2026.
const JOB_START_NS: i64 = 6_829_345_678_901_207;
/// From the job's start to the first step of the job's schedule.
const FIRST_STEP_AFTER_NS: i64 = 700_000;
/// Number of the first step that is profiled.
const FIRST_STEP: u64 = 10;
/// Number of the first Python frame that is not one of [`roots`].
const FIRST_PYTHON_ID: i64 = 6;
/// GPUs of a host.
const GPUS: u32 = 8;

/// Writes the trace of `options.rank`; see [`write_trace_with_progress`].
///
/// # Errors
/// As there.
pub fn write_trace(options: &DemoOptions, out: &mut impl Write) -> io::Result<Truth> {
    write_trace_with_progress(options, out, &mut |_| true)
}

/// Writes the trace of `options.rank` to `out` and returns what is true of it.
///
/// `progress` is told the bytes of JSON so far after each step; false stops.
///
/// # Errors
/// `InvalidInput` for options that [`DemoOptions::check`] refuses, `Interrupted` when `progress` stops,
/// and what `out` reports.
pub fn write_trace_with_progress(
    options: &DemoOptions,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Truth> {
    options.check().map_err(|message| io::Error::new(io::ErrorKind::InvalidInput, message))?;
    if options.gzip {
        let mut out = GzEncoder::new(out, Compression::new(6));
        let truth = write_json(options, &mut out, progress)?;
        out.finish()?;
        Ok(truth)
    } else {
        write_json(options, out, progress)
    }
}

fn write_json(
    options: &DemoOptions,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Truth> {
    let process = process(options);
    let config = Config::new(options.layer_count(), options.ranks);
    let model = build(config, Library::new(options.layout, process));
    let schedule = schedule(options, &model);
    let mut timeline = Timeline::new(&model.library, variation(options), schedule, start(options, &model));
    let start_ns = timeline.now_ns();
    let mut sink = Sink::new(out, options.layout);
    let frame = frame(options);
    sink.text(&options.layout.header(&frame));
    if options.layout.metadata_first() {
        metadata(&mut sink, &mut timeline, process, start_ns);
    }
    for &work in &model.leftovers {
        timeline.leftover(work);
    }
    timeline.play(&model.prologue, FIRST_STEP);
    for step in 0.. {
        timeline.play(model.plan(FIRST_STEP + step), FIRST_STEP + step);
        let records = timeline.take_records();
        sink.records(
            &model.library,
            [&records.ops, &records.memory, &records.python, &records.gpu, &records.annotations],
        );
        timeline.ledger.settle(timeline.now_ns());
        sink.flush()?;
        if !progress(sink.written) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by the caller"));
        }
        let enough = match options.steps {
            Some(steps) => step + 1 >= steps,
            None => sink.written >= options.size_bytes,
        };
        if enough {
            break;
        }
    }
    timeline.play(&model.epilogue, FIRST_STEP);
    let records = timeline.take_records();
    sink.records(
        &model.library,
        [&records.ops, &records.memory, &records.python, &records.gpu, &records.annotations],
    );
    let end_ns = timeline.now_ns();
    roots(&mut sink, &mut timeline, process, (start_ns, end_ns));
    if !options.layout.metadata_first() {
        metadata(&mut sink, &mut timeline, process, start_ns);
    }
    closing(&mut sink, &mut timeline, (start_ns, end_ns));
    sink.text(&options.layout.footer(&frame));
    sink.flush()?;
    sink.out.flush()?;
    let mut truth = timeline.finish().into_truth(&model.library.names);
    truth.seed = options.seed;
    truth.rank = options.rank;
    truth.ranks = options.ranks;
    truth.layers = config.layers;
    truth.layout = options.layout.name();
    truth.json_bytes = sink.written;
    truth.tables.insert("devices", u64::from(GPUS));
    truth.tables.insert("process_groups", u64::from(options.ranks > 1));
    Ok(truth)
}

fn process(options: &DemoOptions) -> Process {
    let mut rng = Rng::new(options.seed, 0x9d);
    // Workers of a host are started one after the other.
    let pid = 20_000 + rng.below(30_000) as i64 + i64::from(options.rank % GPUS) * 71;
    Process { pid, device: i64::from(options.rank % GPUS), rank: options.rank }
}

fn variation(options: &DemoOptions) -> Variation {
    let slower = Rng::new(options.seed, 0x510 + u64::from(options.rank)).below(24) as i64;
    Variation { seed: options.seed, rank: options.rank, slower, is_late: true }
}

fn start(options: &DemoOptions, model: &BuiltModel) -> Start {
    let mut rng = Rng::new(options.seed, 0x57a7 + u64::from(options.rank));
    Start {
        now_ns: JOB_START_NS + rng.below(150_000) as i64,
        allocated: [0, model.allocated_bytes],
        reserved: model.reserved_bytes,
        python_id: FIRST_PYTHON_ID,
        python_root: 2,
    }
}

/// Learns the job's schedule from a rank that nothing disturbs; none for a single rank.
fn schedule(options: &DemoOptions, model: &BuiltModel) -> Option<Schedule> {
    if options.ranks == 1 {
        return None;
    }
    let nobody = Variation { seed: options.seed, rank: u32::MAX, slower: 12, is_late: false };
    let start = Start { now_ns: 0, ..start(options, model) };
    let mut timeline = Timeline::new(&model.library, nobody, None, start);
    timeline.play(&model.prologue, FIRST_STEP);
    let mut ends_ns = Vec::new();
    let mut period_ns = 0;
    for step in FIRST_STEP..FIRST_STEP + 4 {
        let start_ns = timeline.now_ns();
        timeline.play(model.plan(step), step);
        period_ns = period_ns.max(timeline.now_ns() - start_ns);
        ends_ns.resize(timeline.collective_ends_ns().len(), 0);
        for (latest, &end_ns) in ends_ns.iter_mut().zip(timeline.collective_ends_ns()) {
            *latest = (end_ns - start_ns).max(*latest);
        }
    }
    let first_step_ns = JOB_START_NS + FIRST_STEP_AFTER_NS;
    Some(Schedule::new(options.seed, options.ranks, first_step_ns, period_ns, &ends_ns))
}

/// Collects text and hands it on in large pieces.
struct Sink<'a, W: Write> {
    out: &'a mut W,
    layout: Layout,
    buffer: Vec<u8>,
    written: u64,
    is_first: bool,
    event_index: i64,
}

impl<'a, W: Write> Sink<'a, W> {
    fn new(out: &'a mut W, layout: Layout) -> Self {
        Self { out, layout, buffer: Vec::new(), written: 0, is_first: true, event_index: 0 }
    }

    fn text(&mut self, text: &str) {
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
    fn single(&mut self, shape: &Shape, start_ns: i64, dur_ns: i64, values: [i64; 3]) {
        let template = self.layout.template(shape);
        self.event(&template, &Record { template: 0, start_ns, dur_ns, values });
    }

    fn records(&mut self, library: &Library, groups: [&[Record]; 5]) {
        for record in groups.into_iter().flatten().filter(|record| record.template != MOVED) {
            self.event(&library.templates[record.template as usize], record);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// The keys around the events.
fn frame(options: &DemoOptions) -> Frame {
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
        let group = format!(
            "{{\"pg_name\": \"0\", \"pg_desc\": \"default_pg\", \"backend_config\": \"cuda:nccl\", \
             \"pg_size\": {ranks}, \"ranks\": {list}}}",
            ranks = options.ranks,
            list = list(0..options.ranks)
        );
        before.push((
            "distributedInfo",
            format!(
                "{{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}, \"pg_count\": 1, \
                 \"pg_config\": [{group}], \"nccl_version\": \"2.27.5\"}}",
                options.rank, options.ranks
            ),
        ));
    }
    for flag in ["record_shapes", "with_stack", "profile_memory", "with_modules"] {
        before.push((flag, 1.to_string()));
    }
    before.push(("trace_id", quoted(&trace_id)));
    before.push(("host_name", quoted(&host)));
    before.push(("displayTimeUnit", quoted("ms")));
    before.push(("baseTimeNanoseconds", BASE_TIME_NS.to_string()));
    let name = format!("rank{}.pt.trace.json", options.rank);
    Frame { before, after: vec![("traceName", quoted(&name))] }
}

/// Frames that last as long as the trace: the program's on the main thread and the loader's on another.
fn roots<W: Write>(
    sink: &mut Sink<'_, W>,
    timeline: &mut Timeline<'_>,
    process: Process,
    window: (i64, i64),
) {
    let frames: [(Thread, &str, i64, Option<i64>); 5] = [
        (Thread::Main, "train.py(201): <module>", 1, None),
        (Thread::Main, "train.py(163): main", 2, Some(1)),
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
        timeline.ledger.count(EventKind::Python, 1);
    }
}

/// Names, labels and sort order of processes and threads.
fn metadata<W: Write>(sink: &mut Sink<'_, W>, timeline: &mut Timeline<'_>, process: Process, at_ns: i64) {
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
    timeline.ledger.count(EventKind::Metadata, shapes.len() as u64);
    for shape in shapes {
        sink.single(&shape, at_ns, 0, [0; 3]);
    }
}

/// The events with which Kineto ends a trace.
fn closing<W: Write>(sink: &mut Sink<'_, W>, timeline: &mut Timeline<'_>, window: (i64, i64)) {
    let profiler = Ident::Text("PyTorch Profiler");
    let span = Shape {
        pid: Ident::Text("Spans"),
        tid: profiler,
        ..Shape::slice("Trace", "PyTorch Profiler (0)", 0, 0)
    };
    sink.single(&span.json("Op count", 0), window.0, window.1 - window.0, [0; 3]);
    timeline.ledger.count(EventKind::Span, 1);
    let (pid, tid) = (Ident::Text("Spans"), Ident::Int(0));
    let sort = Shape::metadata("process_sort_index", pid, tid, "sort_index", "536870912".to_owned());
    sink.single(&sort, window.0, 0, [0; 3]);
    timeline.ledger.count(EventKind::Metadata, 1);
    for (name, pid, tid, at_ns) in [
        ("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", window.0),
        ("Record Window End", "", "", window.1 + 4_212_345),
    ] {
        let (pid, tid, phase) = (Ident::Text(pid), Ident::Text(tid), Phase::Instant("g"));
        sink.single(&Shape { phase, pid, tid, ..Shape::slice("", name, 0, 0) }, at_ns, 0, [0; 3]);
        timeline.ledger.count(EventKind::Instant, 1);
    }
}
