//! Plans of a step, and their builder: operators, annotations, Python frames, memory, backward pass.

use crate::event::{Arg, Hole, Phase, Shape};
use crate::ledger::Role;
use crate::library::{CollectiveArgs, FlowEnd, Library, OpSpec, Stream, Thread};
use crate::tensor::{Input, input_args};
use std::collections::HashMap;

/// What the host does next. Times are means, ns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instr {
    /// Continues on another thread.
    Switch(Thread),
    /// Lets time pass.
    Wait(u32),
    /// Lets the time pass that the data loader is late in this step.
    Late,
    /// Enters an operator or annotation.
    Op { spec: u32, lead: u32 },
    /// Leaves it.
    EndOp { tail: u32 },
    /// Enters a Python frame.
    Frame { template: u32, lead: u32 },
    /// Leaves it.
    EndFrame { tail: u32 },
    /// Makes a runtime call.
    Call { spec: u32, lead: u32 },
    /// Makes a runtime call on the watchdog's thread, beside what the current thread does.
    Background { spec: u32 },
    /// Allocates a block of memory.
    Alloc(u32),
    /// Frees it.
    Free(u32),
    /// An event of the profiler's own, drawn outside all threads.
    Overhead { template: u32, dur: u32 },
}

/// A step of the traced program.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) instrs: Vec<Instr>,
    /// Sequence numbers that a step takes.
    pub(crate) sequences: u32,
    /// Flows between forward and backward in a step.
    pub(crate) flows: u32,
    /// Event marks in a step.
    pub(crate) marks: u32,
    /// Collectives in a step.
    pub(crate) collectives: u32,
}

/// Description of an operator for [`Builder::op`].
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) name: String,
    pub(crate) inputs: Option<Vec<Input>>,
    pub(crate) sequence: Option<u32>,
    pub(crate) backward: bool,
    pub(crate) flow: FlowEnd,
    pub(crate) collective: Option<(u32, Vec<(&'static str, Arg)>)>,
}

impl Op {
    /// An operator with recorded inputs.
    pub(crate) fn new(name: &str, inputs: impl IntoIterator<Item = Input>) -> Self {
        Self { inputs: Some(inputs.into_iter().collect()), ..Self::bare(name) }
    }

    /// An operator without recorded inputs.
    pub(crate) fn bare(name: &str) -> Self {
        let name = name.to_owned();
        Self { name, inputs: None, sequence: None, backward: false, flow: FlowEnd::None, collective: None }
    }

    /// Gives it the step's sequence number `number`.
    pub(crate) fn sequence(self, number: u32) -> Self {
        Self { sequence: Some(number), ..self }
    }

    /// Gives it a forward operator's sequence number.
    pub(crate) fn backward_of(self, number: u32) -> Self {
        Self { sequence: Some(number), backward: true, ..self }
    }

    /// Lets a flow start or end at it.
    pub(crate) fn flow(self, flow: FlowEnd) -> Self {
        Self { flow, ..self }
    }

    /// Gives it the arguments of a collective.
    pub(crate) fn collective(self, number: u32, args: &CollectiveArgs) -> Self {
        Self { collective: Some((number, args.args())), ..self }
    }
}

/// Emits a part of the backward pass.
pub(crate) type Backward = Box<dyn FnOnce(&mut Builder)>;

/// Writes a [`Plan`].
pub(crate) struct Builder {
    pub(crate) library: Library,
    plan: Plan,
    pub(crate) thread: Thread,
    modules: HashMap<String, u32>,
    tape: Vec<Backward>,
    temporaries: u32,
    gradient: Option<u32>,
}

impl Builder {
    /// A builder of a plan over `library`, which [`Builder::finish`] gives back.
    pub(crate) fn new(library: Library) -> Self {
        Self {
            library,
            plan: Plan::default(),
            thread: Thread::Main,
            modules: HashMap::new(),
            tape: Vec::new(),
            temporaries: 0,
            gradient: None,
        }
    }

    /// The plan, and the library back.
    pub(crate) fn finish(self) -> (Plan, Library) {
        (self.plan, self.library)
    }

    /// Appends an instruction.
    pub(crate) fn push(&mut self, instr: Instr) {
        self.plan.instrs.push(instr);
    }

    /// Continues on another thread.
    pub(crate) fn switch(&mut self, thread: Thread) {
        self.thread = thread;
        self.push(Instr::Switch(thread));
    }

    /// Lets `mean_ns` pass.
    pub(crate) fn wait(&mut self, mean_ns: u32) {
        self.push(Instr::Wait(mean_ns));
    }

    /// Lets the time pass that the data loader is late.
    pub(crate) fn late(&mut self) {
        self.push(Instr::Late);
    }

    /// The step's next sequence number.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.plan.sequences += 1;
        self.plan.sequences - 1
    }

    /// The step's next flow.
    pub(crate) fn next_flow(&mut self) -> u32 {
        self.plan.flows += 1;
        self.plan.flows - 1
    }

    /// The step's next event mark.
    pub(crate) fn next_mark(&mut self) -> u32 {
        self.plan.marks += 1;
        self.plan.marks - 1
    }

    /// The step's next collective.
    pub(crate) fn next_collective(&mut self) -> u32 {
        self.plan.collectives += 1;
        self.plan.collectives - 1
    }

    /// Number of collectives so far.
    pub(crate) fn collective_count(&self) -> u32 {
        self.plan.collectives
    }

    /// Puts off `backward` until [`Builder::run_backward`].
    pub(crate) fn on_backward(&mut self, backward: impl FnOnce(&mut Self) + 'static) {
        self.tape.push(Box::new(backward));
    }

    /// Place of what is put off next.
    pub(crate) fn backward_place(&self) -> usize {
        self.tape.len()
    }

    /// Puts off `backward` until after all that was put off since `place`.
    pub(crate) fn on_backward_at(&mut self, place: usize, backward: impl FnOnce(&mut Self) + 'static) {
        self.tape.insert(place, Box::new(backward));
    }

    /// Emits what was put off, last first.
    pub(crate) fn run_backward(&mut self) {
        while let Some(backward) = self.tape.pop() {
            backward(self);
        }
    }

    /// An operator around `body`.
    pub(crate) fn op(&mut self, op: Op, body: impl FnOnce(&mut Self)) {
        self.begin_op(op);
        body(self);
        self.end_op();
    }

    /// An operator that calls nothing.
    pub(crate) fn leaf(&mut self, op: Op, mean_ns: u32) {
        self.op(op, |b| b.wait(mean_ns));
    }

    fn begin_op(&mut self, op: Op) {
        let (pid, tid) = (self.library.process.pid, self.library.process.tid(self.thread));
        let mut shape = Shape::slice("cpu_op", &op.name, pid, tid).hole("External id", Hole::Value(0));
        if op.sequence.is_some() {
            shape = shape.hole("Sequence number", Hole::Value(1));
            shape = shape.json("Fwd thread id", u8::from(op.backward));
        }
        shape = shape.json("Record function id", 0);
        if let Some(inputs) = &op.inputs {
            shape.args.extend(input_args(inputs).map(|(key, text)| (key, Arg::Json(text))));
        }
        let collective = op.collective.map(|(number, args)| {
            shape.args.extend(args);
            shape.args.push(("Rank", Arg::Json(self.library.process.rank.to_string())));
            shape.args.push(("Is asynchronized op", Arg::Json("1".to_owned())));
            number
        });
        let shape = shape.hole("Ev Idx", Hole::EventIndex);
        let flow = match op.flow {
            FlowEnd::End(_) => Shape::flow(Phase::FlowEnd, "fwdbwd", pid, tid),
            _ => Shape::flow(Phase::FlowStart, "fwdbwd", pid, tid),
        };
        let spec = OpSpec {
            name: self.library.name(&op.name),
            is_annotation: false,
            is_collective_op: op.name.starts_with("c10d::") || op.name == "record_param_comms",
            role: Some(Role::CpuExec),
            template: self.library.template(&shape),
            sequence: op.sequence.unwrap_or(0),
            flow: op.flow,
            flow_template: self.library.template(&flow),
            collective,
            gpu_templates: [0; 3],
        };
        let spec = self.add_op(spec);
        self.push(Instr::Op { spec, lead: 560 });
    }

    fn add_op(&mut self, spec: OpSpec) -> u32 {
        self.library.ops.push(spec);
        self.library.ops.len() as u32 - 1
    }

    /// Leaves the operator or annotation.
    pub(crate) fn end_op(&mut self) {
        self.push(Instr::EndOp { tail: 430 });
    }

    /// An annotation around `body`.
    pub(crate) fn annotation(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        self.begin_annotation(name);
        body(self);
        self.end_op();
    }

    /// Enters an annotation; a name that ends in `#` is followed by the step's number.
    pub(crate) fn begin_annotation(&mut self, name: &str) {
        let numbered = name.ends_with('#');
        let process = self.library.process;
        let tid = process.tid(self.thread);
        let name_number = numbered.then_some(Hole::Value(2));
        let shape = Shape::slice("user_annotation", name, process.pid, tid);
        let shape = shape.hole("External id", Hole::Value(0)).json("Record function id", 0);
        let shape = Shape { name_number, ..shape.hole("Ev Idx", Hole::EventIndex) };
        let gpu_templates = Stream::ALL.map(|stream| {
            let shape = Shape::slice("gpu_user_annotation", name, process.device, stream.id());
            let shape = shape.hole("External id", Hole::Value(0));
            self.library.template(&Shape { name_number, ..shape })
        });
        let spec = OpSpec {
            name: self.library.name(if numbered { "ProfilerStep*" } else { name }),
            is_annotation: true,
            is_collective_op: false,
            role: Role::of_annotation(name),
            template: self.library.template(&shape),
            sequence: 0,
            flow: FlowEnd::None,
            flow_template: 0,
            collective: None,
            gpu_templates,
        };
        let spec = self.add_op(spec);
        self.push(Instr::Op { spec, lead: 900 });
    }

    /// A Python frame around `body`.
    pub(crate) fn frame(&mut self, name: &str, body: impl FnOnce(&mut Self)) {
        self.begin_frame(name);
        body(self);
        self.end_frame();
    }

    /// A Python frame that calls nothing.
    pub(crate) fn leaf_frame(&mut self, name: &str, mean_ns: u32) {
        self.frame(name, |b| b.wait(mean_ns));
    }

    /// Enters a Python frame.
    pub(crate) fn begin_frame(&mut self, name: &str) {
        self.begin_python(name, None);
    }

    /// Leaves a Python frame.
    pub(crate) fn end_frame(&mut self) {
        self.push(Instr::EndFrame { tail: 240 });
    }

    fn begin_python(&mut self, name: &str, module: Option<u32>) {
        let process = self.library.process;
        let shape = Shape::slice("python_function", name, process.pid, process.tid(self.thread));
        let shape = shape.hole("Python parent id", Hole::Value(1)).hole("Python id", Hole::Value(0));
        let shape = match module {
            Some(id) => shape.json("Python module id", id),
            None => shape,
        };
        let template = self.library.template(&shape.hole("Ev Idx", Hole::EventIndex));
        self.push(Instr::Frame { template, lead: 310 });
    }

    /// The call of a new instance of an `nn.Module` class, around `body`.
    pub(crate) fn module(&mut self, class: &str, source: &str, body: impl FnOnce(&mut Self)) {
        self.begin_module(class, source);
        body(self);
        self.end_module();
    }

    /// Enters the call of a new instance of an `nn.Module` class, down to its `forward` at `source`.
    pub(crate) fn begin_module(&mut self, class: &str, source: &str) {
        let count = self.modules.entry(class.to_owned()).or_insert(0);
        let instance = *count;
        *count += 1;
        self.begin_python(&format!("nn.Module: {class}_{instance}"), Some(instance));
        self.begin_frame("torch/nn/modules/module.py(1778): _call_impl");
        self.leaf_frame("<built-in method _get_tracing_state of PyCapsule object at 0x7f3b0c51e7f0>", 420);
        self.begin_frame(source);
        for _ in 0..2 {
            self.leaf_frame("torch/nn/modules/module.py(1925): __getattr__", 240);
        }
    }

    /// Leaves it.
    pub(crate) fn end_module(&mut self) {
        for _ in 0..3 {
            self.end_frame();
        }
    }

    /// Allocates the block of memory called `key`.
    pub(crate) fn alloc(&mut self, key: &str, bytes: i64, on_device: bool) -> u32 {
        let block = self.library.block(key, bytes, on_device);
        self.push(Instr::Alloc(block));
        block
    }

    /// Allocates device memory under a name of its own.
    pub(crate) fn alloc_temporary(&mut self, bytes: i64) -> u32 {
        self.temporaries += 1;
        self.alloc(&format!("temporary {}", self.temporaries), bytes, true)
    }

    /// Frees a block.
    pub(crate) fn free(&mut self, block: u32) {
        self.push(Instr::Free(block));
    }

    /// Allocates the gradient that the backward pass goes on with, and frees the one before.
    pub(crate) fn next_gradient(&mut self, bytes: i64) {
        let next = self.alloc_temporary(bytes);
        self.drop_gradient();
        self.gradient = Some(next);
    }

    /// Frees the gradient that the backward pass went on with.
    pub(crate) fn drop_gradient(&mut self) {
        if let Some(block) = self.gradient.take() {
            self.free(block);
        }
    }

    /// An event of the profiler's own.
    pub(crate) fn overhead(&mut self, name: &str, mean_ns: u32) {
        let template = self.library.template(&Shape::slice("overhead", name, -1, 0));
        self.push(Instr::Overhead { template, dur: mean_ns });
    }
}
