//! Plans of a step, and their builder: operators, annotations, Python frames, memory, backward pass.

use std::collections::HashMap;

use crate::event::{Arg, Hole, Phase, Shape};
use crate::library::{CollectiveArgs, Library, OpSpec, Process, Role, Stream, Thread, add};
use crate::options::Cause;
use crate::tensor::{Input, Param, Tensor, input_args};

/// What the host does next. Times are means, ns; numbers are those of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instr {
    /// Continues on another thread.
    Switch(Thread),
    /// Lets time pass.
    Wait(u32),
    /// Lets the time pass that the data loader is late in this step.
    Late,
    /// Begins or ends what a cause adds, whose times are drawn apart from those of everything else.
    Aside,
    /// Enters an operator or annotation.
    Op(u32),
    /// Leaves it.
    EndOp,
    /// Enters a Python frame.
    Frame(u32),
    /// Leaves it.
    EndFrame,
    /// Makes a runtime call.
    Call(u32),
    /// Makes a runtime call on the watchdog's thread, beside what the current thread does.
    Background(u32),
    /// Allocates a block of memory.
    Alloc(u32),
    /// Frees it.
    Free(u32),
    /// An event of the profiler's own, drawn outside all threads.
    Overhead { shape: u32, dur: u32 },
}

/// A step of the traced program.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) instrs: Vec<Instr>,
    /// Nodes of the autograd graph in a step: each takes a sequence number and a flow.
    pub(crate) nodes: u32,
    /// Collectives in a step.
    pub(crate) collectives: u32,
}

/// Description of an operator for [`Builder::op`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Op {
    name: String,
    inputs: Option<Vec<Input>>,
    node: Option<Node>,
    is_backward: bool,
    flow: Option<Phase>,
    collective: Option<CollectiveArgs>,
}

impl Op {
    /// An operator with recorded inputs; [`op!`] is shorter.
    pub(crate) fn new(name: &str, inputs: impl IntoIterator<Item = Input>) -> Self {
        Self { inputs: Some(inputs.into_iter().collect()), ..Self::bare(name) }
    }

    /// An operator without recorded inputs.
    pub(crate) fn bare(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Gives it the arguments of a collective.
    pub(crate) fn collective(self, args: CollectiveArgs) -> Self {
        Self { collective: Some(args), ..self }
    }
}

/// An operator with recorded inputs: its name, then what they are made from.
macro_rules! op {
    ($name:expr $(, $input:expr)* $(,)?) => {
        $crate::plan::Op::new($name, [$($crate::tensor::Input::from($input)),*])
    };
}
pub(crate) use op;

/// An operator's place in the autograd graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node(u32);

impl Node {
    /// Marks the forward operator that the node belongs to.
    pub(crate) fn forward(self, op: Op) -> Op {
        Op { flow: Some(Phase::FlowStart), ..self.around(op) }
    }

    /// Marks an operator around it, which shares the sequence number.
    pub(crate) fn around(self, op: Op) -> Op {
        Op { node: Some(self), ..op }
    }

    /// The node's part of the backward pass: the engine's wrapper, the function, and `body` inside.
    pub(crate) fn backward<R>(
        self,
        b: &mut Builder,
        name: &str,
        grad: &Tensor,
        body: impl FnOnce(&mut Builder) -> R,
    ) {
        let wrapper = Op::bare(&format!("autograd::engine::evaluate_function: {name}"));
        b.op(Op { is_backward: true, ..self.around(wrapper) }, |b| {
            b.op(Op { is_backward: true, flow: Some(Phase::FlowEnd), ..self.around(op!(name, grad)) }, body);
        });
    }
}

/// Emits a part of the backward pass.
type Backward = Box<dyn FnOnce(&mut Builder)>;

/// Writes [`Plan`]s.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) library: Library,
    cause: Option<Cause>,
    /// The model's parameters that the plan has met.
    pub(crate) params: Vec<Param>,
    plan: Plan,
    pub(crate) thread: Thread,
    modules: HashMap<String, u32>,
    tape: Vec<Backward>,
    temporaries: u32,
    gradient: Option<u32>,
}

impl Builder {
    /// A builder of the first plan of a process, in a job with that cause.
    pub(crate) fn new(process: Process, cause: Option<Cause>) -> Self {
        let mut builder = Self { cause, ..Self::default() };
        builder.library.process = process;
        builder
    }

    /// Emits what a cause adds, if it is that of the job.
    pub(crate) fn if_cause(&mut self, cause: Cause, body: impl FnOnce(&mut Self)) {
        if self.cause == Some(cause) {
            self.push(Instr::Aside);
            body(self);
            self.push(Instr::Aside);
        }
    }

    /// Hands out the plan and begins the next one.
    pub(crate) fn finish(&mut self) -> Plan {
        self.params.clear();
        self.modules.clear();
        self.temporaries = 0;
        std::mem::take(&mut self.plan)
    }

    pub(crate) fn push(&mut self, instr: Instr) {
        self.plan.instrs.push(instr);
    }

    /// Appends an instruction after a wait.
    pub(crate) fn push_after(&mut self, mean_ns: u32, instr: Instr) {
        self.plan.instrs.extend([Instr::Wait(mean_ns), instr]);
    }

    pub(crate) fn switch(&mut self, thread: Thread) {
        self.thread = thread;
        self.push(Instr::Switch(thread));
    }

    pub(crate) fn wait(&mut self, mean_ns: u32) {
        self.push(Instr::Wait(mean_ns));
    }

    /// The next nodes of the step's autograd graph.
    pub(crate) fn nodes<const N: usize>(&mut self) -> [Node; N] {
        [(); N].map(|()| {
            self.plan.nodes += 1;
            Node(self.plan.nodes - 1)
        })
    }

    /// The step's next collective.
    pub(crate) fn next_collective(&mut self) -> u32 {
        self.plan.collectives += 1;
        self.plan.collectives - 1
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

    pub(crate) fn op<R>(&mut self, op: Op, body: impl FnOnce(&mut Self) -> R) -> R {
        self.begin_op(op);
        let made = body(self);
        self.end_op();
        made
    }

    /// An operator that calls nothing.
    pub(crate) fn leaf(&mut self, op: Op, mean_ns: u32) {
        self.op(op, |b| b.wait(mean_ns));
    }

    fn begin_op(&mut self, op: Op) {
        let process = self.library.process;
        let (pid, tid) = (process.pid, process.tid(self.thread));
        let mut shape = Shape::slice("cpu_op", &op.name, pid, tid).hole("External id", Hole::Value(0));
        if op.node.is_some() {
            shape = shape.hole("Sequence number", Hole::Value(1));
            shape = shape.json("Fwd thread id", u8::from(op.is_backward));
        }
        shape = shape.json("Record function id", 0);
        if let Some(inputs) = op.inputs {
            shape.args.extend(input_args(&inputs).map(|(key, text)| (key, Arg::Json(text))));
        }
        if let Some(args) = &op.collective {
            shape = args.add_to(shape).json("Rank", process.rank).json("Is asynchronized op", 1);
        }
        let flow = op.flow.map(|phase| (phase, self.library.shape(Shape::flow(phase, "fwdbwd", pid, tid))));
        let spec = OpSpec {
            name: self.library.name(&op.name),
            role: Some(Role::CpuExec),
            shape: self.library.shape(shape.hole("Ev Idx", Hole::EventIndex)),
            node: op.node.map_or(0, |node| node.0),
            flow,
            collective: op.collective.map(|args| args.number),
            ..OpSpec::default()
        };
        let spec = add(&mut self.library.ops, spec);
        self.push_after(560, Instr::Op(spec));
    }

    /// Leaves the operator or annotation.
    pub(crate) fn end_op(&mut self) {
        self.push_after(430, Instr::EndOp);
    }

    /// An annotation around `body`.
    pub(crate) fn annotation<R>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> R) -> R {
        self.begin_annotation(name);
        let made = body(self);
        self.end_op();
        made
    }

    /// Enters an annotation; a name that ends in `#` is followed by the step's number.
    pub(crate) fn begin_annotation(&mut self, name: &str) {
        let numbered = name.ends_with('#');
        let name_number = numbered.then_some(Hole::Value(2));
        let process = self.library.process;
        let event = |category, pid, tid| {
            let shape = Shape::slice(category, name, pid, tid).hole("External id", Hole::Value(0));
            Shape { name_number, ..shape }
        };
        let shape = event("user_annotation", process.pid, process.tid(self.thread));
        let shape = shape.json("Record function id", 0).hole("Ev Idx", Hole::EventIndex);
        let gpu_shapes = Stream::ALL.map(|stream| event("gpu_user_annotation", process.device, stream.id()));
        let spec = OpSpec {
            name: self.library.name(if numbered { "ProfilerStep*" } else { name }),
            is_annotation: true,
            role: Role::of_annotation(name),
            shape: self.library.shape(shape),
            gpu_shapes: gpu_shapes.map(|shape| self.library.shape(shape)),
            ..OpSpec::default()
        };
        let spec = add(&mut self.library.ops, spec);
        self.push_after(900, Instr::Op(spec));
    }

    /// A Python frame around `body`.
    pub(crate) fn frame<R>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> R) -> R {
        self.begin_frame(name);
        let made = body(self);
        self.end_frame();
        made
    }

    /// A Python frame that calls nothing.
    pub(crate) fn leaf_frame(&mut self, name: &str, mean_ns: u32) {
        self.frame(name, |b| b.wait(mean_ns));
    }

    pub(crate) fn begin_frame(&mut self, name: &str) {
        self.begin_python(name, None);
    }

    pub(crate) fn end_frame(&mut self) {
        self.push_after(240, Instr::EndFrame);
    }

    fn begin_python(&mut self, name: &str, module: Option<u32>) {
        let process = self.library.process;
        let mut shape = Shape::slice("python_function", name, process.pid, process.tid(self.thread))
            .hole("Python parent id", Hole::Value(1))
            .hole("Python id", Hole::Value(0));
        if let Some(id) = module {
            shape = shape.json("Python module id", id);
        }
        let shape = self.library.shape(shape.hole("Ev Idx", Hole::EventIndex));
        self.push_after(310, Instr::Frame(shape));
    }

    /// The call of a new instance of an `nn.Module` class, down to its `forward` at `source`, around `body`.
    pub(crate) fn module<R>(&mut self, class: &str, source: &str, body: impl FnOnce(&mut Self) -> R) -> R {
        let count = self.modules.entry(class.to_owned()).or_insert(0);
        let instance = *count;
        *count += 1;
        self.begin_python(&format!("nn.Module: {class}_{instance}"), Some(instance));
        let made = self.frame("torch/nn/modules/module.py(1778): _call_impl", |b| {
            b.leaf_frame("<built-in method _get_tracing_state of PyCapsule object at 0x7f3b0c51e7f0>", 420);
            b.frame(source, |b| {
                for _ in 0..2 {
                    b.leaf_frame("torch/nn/modules/module.py(1925): __getattr__", 240);
                }
                body(b)
            })
        });
        self.end_frame();
        made
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

    pub(crate) fn free(&mut self, block: u32) {
        self.push(Instr::Free(block));
    }

    /// Frees the block of device memory called `key`.
    pub(crate) fn free_key(&mut self, key: &str, bytes: i64) {
        let block = self.library.block(key, bytes, true);
        self.free(block);
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
        let shape = self.library.shape(Shape::slice("overhead", name, -1, 0));
        self.push(Instr::Overhead { shape, dur: mean_ns });
    }
}
