//! One training step as a list of instructions, and the description of an operator.

use crate::library::{CollectiveArgs, FlowEnd, Thread};
use crate::shape::Arg;
use crate::tensor::Input;

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
