//! A rank of the job as the PyTorch profiler writes it.

use std::fmt::Write;
use std::iter;

use super::mesh::Dimension;
use super::plan::{Collective, Op, Partners, Scope, Thread, Work};
use super::play::{EVENT_NS, Extent, Job, Rank};
use crate::event::{list, quoted};
use crate::gpu::{GPUS, device_properties};

/// Memory of the GPU, bytes.
const CAPACITY: f64 = 85_014_085_632.0;
/// Numbers that a launch takes: its own, and of the calls that order streams.
const NUMBERS: u64 = 8;
const LAUNCH: &str = "cudaLaunchKernel";

/// Text before the events.
pub(super) fn header(job: &Job<'_>, rank: u32) -> String {
    let ranks = job.parallel().ranks().unwrap_or(0);
    let groups = Dimension::ALL.into_iter().filter_map(|dimension| {
        let ranks = job.parallel().group(rank, dimension);
        (ranks.len() > 1).then(|| {
            format!(
                "{{\"pg_name\": \"{}\", \"pg_desc\": \"mesh_{}\", \"backend_config\": \"cuda:nccl\", \
                 \"pg_size\": {}, \"ranks\": {}}}",
                dimension as u8 + 1,
                dimension.name(),
                ranks.len(),
                list(ranks)
            )
        })
    });
    let groups: Vec<String> = groups.collect();
    let info = format!(
        "{{\"backend\": \"nccl\", \"rank\": {rank}, \"world_size\": {ranks}, \"pg_count\": {}, \
         \"pg_config\": {}, \"nccl_version\": \"2.27.5\"}}",
        groups.len(),
        list(groups)
    );
    format!(
        "{{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": {},\n  \"distributedInfo\": {info},\n  \
         \"record_shapes\": 1,\n  \"profile_memory\": 1,\n  \"host_name\": \"node{:02}\",\n  \
         \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": {},\n  \"traceEvents\": [\n",
        device_properties(GPUS),
        rank / GPUS,
        crate::trace::BASE_TIME_NS,
    )
}

/// Text after the events.
pub(super) fn footer(rank: u32) -> String {
    format!("\n  ],\n  \"traceName\": \"rank{rank}.pt.trace.json\"\n}}\n")
}

/// The events of a step, in which `memory` of the GPU is in use.
pub(super) fn events(job: &Job<'_>, rank: &Rank<'_>, (index, step): (u64, u64), memory: f64) -> String {
    let pid = 20_000 + i64::from(rank.number % GPUS) * 71;
    let device = i64::from(rank.number % GPUS);
    let mut text = Text { out: String::new(), pid, is_first: index == 0 };
    let plan = rank.plan;
    let first_op = 1 + index * plan.ops.len() as u64;
    let first_work = 1 + index * plan.works.len() as u64;
    let arguments = Arguments { job, rank, step, index };
    for ((number, op), &extent) in iter::zip(first_op.., &plan.ops).zip(&rank.ops) {
        let tid = text.thread(op.thread);
        let (category, args) = match op.scope {
            Scope::Operator => ("cpu_op", arguments.of_operator(op, number)),
            Scope::Annotation => ("user_annotation", format!("\"External id\": {number}")),
            Scope::Module => {
                let parent = op.module.map_or("null".to_owned(), |op| (first_op + u64::from(op)).to_string());
                let module = op.name.rsplit('_').next().unwrap_or("0");
                let ids = format!("\"Python id\": {number}, \"Python parent id\": {parent}");
                ("python_function", format!("{ids}, \"Python module id\": {module}"))
            }
        };
        let named = op.name.strip_suffix('#').map(|name| format!("{name}#{step}"));
        text.slice(category, named.as_deref().unwrap_or(&op.name), (pid, tid), extent, &args);
    }
    for (place, work) in plan.works.iter().enumerate() {
        let number = (first_work + place as u64) * NUMBERS;
        let external = first_op + u64::from(work.op);
        text.launch(work, number, external, rank.launches[place]);
        for (&other, nth) in work.after.iter().zip(0..) {
            let awaited = &plan.works[other as usize];
            let record = (first_work + u64::from(other)) * NUMBERS + 1;
            text.wait(
                (work, awaited),
                (number + 2 + nth, record),
                (rank.launches[place].0, nth as i64),
                device,
            );
        }
        let kernel = &work.kernel;
        let mut args = format!(
            "\"External id\": {external}, \"queued\": 0, \"device\": {device}, \"context\": 1, \"stream\": {}, \
             \"correlation\": {number}, \"registers per thread\": {}, \"shared memory\": {}, \
             \"blocks per SM\": {:.6}, \"warps per SM\": {:.6}, \"grid\": {}, \"block\": {}, \
             \"est. achieved occupancy %\": {}",
            work.stream.id(),
            kernel.registers,
            kernel.shared_memory,
            kernel.blocks_per_sm(),
            kernel.warps_per_sm(),
            list(kernel.grid),
            list(kernel.block),
            kernel.occupancy_pct(),
        );
        if let Some(collective) = work.collective {
            args += &arguments.of_collective(&collective, work);
        }
        let stream = i64::from(work.stream.id());
        text.slice("kernel", &kernel.name, (device, stream), rank.works[place], &args);
    }
    for (&extent, number) in rank.waits.iter().zip(0..) {
        let number = (u64::MAX >> 20) - (index << 20) - number;
        let args = format!("\"cbid\": 165, \"correlation\": {number}");
        text.slice("cuda_runtime", "cudaDeviceSynchronize", (pid, pid), extent, &args);
    }
    text.memory(rank.ops[0], device, (CAPACITY * memory) as i64);
    text.out
}

/// Events on their way out.
struct Text {
    out: String,
    pid: i64,
    is_first: bool,
}

impl Text {
    fn thread(&self, thread: Thread) -> i64 {
        self.pid + if thread == Thread::Main { 0 } else { 617 }
    }

    fn event(&mut self, text: &str) {
        self.out.push_str(if std::mem::take(&mut self.is_first) { "" } else { ",\n" });
        self.out.push_str(text);
    }

    fn slice(
        &mut self,
        category: &str,
        name: &str,
        (pid, tid): (i64, i64),
        (start, end): Extent,
        args: &str,
    ) {
        let (start, dur) = (micros(start), micros(end - start));
        self.event(&format!(
            "{{\"ph\": \"X\", \"cat\": \"{category}\", \"name\": \"{name}\", \"pid\": {pid}, \"tid\": {tid}, \
             \"ts\": {start}, \"dur\": {dur}, \"args\": {{{args}}}}}"
        ));
    }

    fn launch(&mut self, work: &Work, number: u64, external: u64, (start, end): Extent) {
        let track = (self.pid, self.thread(work.thread));
        let (name, cbid) =
            if work.collective.is_some() { ("cudaLaunchKernelExC", 430) } else { (LAUNCH, 211) };
        let args = |cbid: u32, number: u64| {
            format!("\"External id\": {external}, \"cbid\": {cbid}, \"correlation\": {number}")
        };
        self.slice("cuda_runtime", name, track, (start, end), &args(cbid, number));
        if work.is_awaited {
            let extent = (end + 50, end + EVENT_NS - 50);
            self.slice("cuda_runtime", "cudaEventRecord", track, extent, &args(135, number + 1));
        }
    }

    /// The call that lets a stream wait for another, `nth` before a launch.
    fn wait(
        &mut self,
        (work, awaited): (&Work, &Work),
        (number, record): (u64, u64),
        (launch_ns, nth): (i64, i64),
        device: i64,
    ) {
        let end = launch_ns - EVENT_NS * nth - 50;
        let extent = (end - EVENT_NS + 100, end);
        let args = format!("\"cbid\": 147, \"correlation\": {number}");
        self.slice(
            "cuda_runtime",
            "cudaStreamWaitEvent",
            (self.pid, self.thread(work.thread)),
            extent,
            &args,
        );
        let (stream, other) = (work.stream.id(), awaited.stream.id());
        let args = format!(
            "\"cuda_sync_kind\": \"Stream Wait Event\", \"stream\": {stream}, \"correlation\": {number}, \
             \"device\": {device}, \"context\": 1, \"wait_on_stream\": {other}, \
             \"wait_on_cuda_event_record_corr_id\": {record}, \"wait_on_cuda_event_id\": {record}"
        );
        self.slice("cuda_sync", "Stream Wait Event", (device, i64::from(stream)), extent, &args);
    }

    /// The activations of a step are allocated at its begin and freed at its end.
    fn memory(&mut self, (start, end): Extent, device: i64, peak: i64) {
        let activations = peak / 2;
        for (at, bytes, total) in [(start + 1_000, activations, peak), (end - 1_000, -activations, peak / 2)]
        {
            let (at, pid, reserved) = (micros(at), self.pid, peak + peak / 64);
            self.event(&format!(
                "{{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\", \
                 \"pid\": {pid}, \"tid\": {pid}, \"ts\": {at}, \"args\": {{\"Total Reserved\": {reserved}, \
                 \"Total Allocated\": {total}, \"Bytes\": {bytes}, \"Addr\": 139853000000000, \
                 \"Device Id\": {device}, \"Device Type\": 1}}}}"
            ));
        }
    }
}

/// What the arguments of events follow from.
struct Arguments<'a> {
    job: &'a Job<'a>,
    rank: &'a Rank<'a>,
    step: u64,
    index: u64,
}

impl Arguments<'_> {
    fn of_operator(&self, op: &Op, number: u64) -> String {
        let mut text = format!("\"External id\": {number}, \"Record function id\": 0");
        if let Some((node, is_gradient)) = op.node {
            let sequence = self.index * u64::from(self.rank.plan.nodes) + u64::from(node);
            let thread = u8::from(is_gradient);
            let _ = write!(text, ", \"Sequence number\": {sequence}, \"Fwd thread id\": {thread}");
        }
        if let Some(inputs) = &op.inputs {
            let splits = op.exchange.map(|exchange| self.splits(exchange.number, exchange.is_return));
            let filled = |text: &str| match &splits {
                None => text.to_owned(),
                Some((sent, received)) => {
                    let text = text.replace("<<", &list(sent)).replace(">>", &list(received));
                    let [sent, received] =
                        [sent, received].map(|tokens| tokens.iter().sum::<i64>().to_string());
                    text.replace('<', &sent).replace('>', &received)
                }
            };
            let (dims, types) = (filled(&inputs.dims), &inputs.types);
            let _ = write!(text, ", \"Input Dims\": {dims}, \"Input type\": {types}");
            if let Some(values) = inputs.values {
                let _ = write!(text, ", \"Concrete Inputs\": {}", filled(values));
            }
        }
        if let Some(work) = op.collective {
            let work = &self.rank.plan.works[work as usize];
            if let Some(collective) = work.collective {
                text += &self.of_collective(&collective, work);
            }
        }
        text
    }

    /// Tokens that the rank sends to each rank, and receives from each.
    fn splits(&self, number: u32, is_return: bool) -> (Vec<i64>, Vec<i64>) {
        let tokens = self.job.tokens(self.rank.number, self.step, number);
        let own = self.job.place_of(self.rank.number);
        let received = tokens.iter().map(|row| row[own]).collect();
        if is_return { (received, tokens[own].clone()) } else { (tokens[own].clone(), received) }
    }

    fn of_collective(&self, collective: &Collective, work: &Work) -> String {
        let Collective { dimension, name, in_elements, out_elements, partners } = *collective;
        let ranks = self.job.parallel().group(self.rank.number, dimension);
        let (mut splits, mut elements) = ((String::new(), String::new()), (in_elements, out_elements));
        if let Some(exchange) = work.exchange {
            let (sent, received) = self.splits(exchange.number, exchange.is_return);
            let width = super::plan::HIDDEN;
            elements = (sent.iter().sum::<i64>() * width, received.iter().sum::<i64>() * width);
            splits = (list(sent), list(received));
        }
        let empty = |text: String| if text.is_empty() { "[]".to_owned() } else { text };
        let mut text = format!(
            ", \"Collective name\": \"{name}\", \"In msg nelems\": {}, \"Out msg nelems\": {}, \
             \"Group size\": {}, \"dtype\": \"BFloat16\", \"In split size\": \"{}\", \"Out split size\": \"{}\", \
             \"Process Group Name\": \"{}\", \"Process Group Description\": \"mesh_{}\", \
             \"Process Group Ranks\": {}",
            elements.0,
            elements.1,
            ranks.len(),
            empty(splits.0),
            empty(splits.1),
            dimension as u8 + 1,
            dimension.name(),
            quoted(&list(&ranks)),
        );
        if let Partners::Stage { other, .. } = partners {
            // torch names the other end alone.
            let key = if name == "send" { "Dst Rank" } else { "Src Rank" };
            let _ = write!(text, ", \"{key}\": {}", ranks[other as usize]);
        }
        text
    }
}

/// Nanoseconds as microseconds with three decimals.
fn micros(ns: i64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}
