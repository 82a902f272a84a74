//! The plan of a step: what the host of a rank does, and what it launches.

use super::mesh::Dimension;
use crate::event::list;
use crate::gpu::Kernel;

pub(super) const SEQUENCES: i64 = 2;
pub(super) const SEQUENCE: i64 = 4096;
pub(super) const HIDDEN: i64 = 2048;
/// Experts of a token.
pub(super) const CHOICES: i64 = 2;

/// What the host does next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Instr {
    /// Enters an operator, annotation or module.
    Begin(u32),
    /// Leaves it.
    End,
    /// Continues on another thread.
    Switch,
    /// Launches a GPU operation.
    Launch(u32),
    /// Waits for a GPU operation, or for all.
    Synchronise(Option<u32>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thread {
    Main,
    Autograd,
}

/// A stream; collectives of each purpose have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Compute,
    Tensor,
    Experts,
    Gather,
    Reduce,
    ForwardReceive,
    ForwardSend,
    BackwardReceive,
    BackwardSend,
}

impl Stream {
    pub(super) const COUNT: usize = 9;

    pub(super) fn id(self) -> u32 {
        [7, 20, 24, 28, 32, 36, 40, 44, 48][self as usize]
    }
}

/// What an event of the host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Operator,
    Annotation,
    Module,
}

/// Inputs of an operator, as lists in JSON. `<` and `>` stand for the tokens that go into the exchange of the operator
/// and come out of it, `<<` and `>>` for their splits.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    pub(super) dims: String,
    pub(super) types: String,
    /// Values of inputs that are no tensors.
    pub(super) values: Option<&'static str>,
}

impl Inputs {
    /// Tensors of bf16 and, where a shape is empty, other values.
    pub(super) fn of(shapes: &[&[i64]]) -> Self {
        let texts: Vec<String> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
        Self::tensors(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The same from the text of each shape.
    pub(super) fn tensors(shapes: &[&str]) -> Self {
        let kind = |shape: &&str| if *shape == "[]" { r#""Scalar""# } else { r#""c10::BFloat16""# };
        Self { dims: list(shapes), types: list(shapes.iter().map(kind)), values: None }
    }

    pub(super) fn values(self, values: &'static str) -> Self {
        Self { values: Some(values), ..self }
    }
}

/// An operator, annotation or module of a step.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) scope: Scope,
    pub(super) name: String,
    pub(super) inputs: Option<Inputs>,
    /// Number of the node in the autograd graph, and whether it is the gradient.
    pub(super) node: Option<(u32, bool)>,
    pub(super) exchange: Option<Exchange>,
    pub(super) thread: Thread,
    /// The innermost module around a module.
    pub(super) module: Option<u32>,
    /// The collective whose arguments it has.
    pub(super) collective: Option<u32>,
}

/// A pass of a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pass {
    pub(super) micro_batch: u32,
    pub(super) is_backward: bool,
}

/// An exchange of tokens between experts: its number in the step, and whether they are on their way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) number: u32,
    pub(super) is_return: bool,
}

/// Who takes part in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partners {
    /// The group; the operations of its ranks have the same number.
    Group,
    /// A neighbour in the pipeline.
    Stage { other: u32, pass: Pass },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Collective {
    pub(super) dimension: Dimension,
    pub(super) name: &'static str,
    pub(super) in_elements: i64,
    pub(super) out_elements: i64,
    pub(super) partners: Partners,
}

/// A GPU operation of a step.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) kernel: Kernel,
    pub(super) stream: Stream,
    /// Operations of other streams that end before it begins.
    pub(super) after: Vec<u32>,
    /// Whether another stream waits for it.
    pub(super) is_awaited: bool,
    /// Operator and thread that launch it.
    pub(super) op: u32,
    pub(super) thread: Thread,
    /// Pass that it computes a part of.
    pub(super) pass: Option<Pass>,
    /// Exchange whose tokens it depends on.
    pub(super) exchange: Option<Exchange>,
    pub(super) collective: Option<Collective>,
}

/// A step of a stage.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) instrs: Vec<Instr>,
    pub(super) ops: Vec<Op>,
    pub(super) works: Vec<Work>,
    /// Nodes of the autograd graph.
    pub(super) nodes: u32,
}

/// A forward operator with a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Embedding,
    Add,
    Norm,
    /// Queries, keys and values.
    Projection,
    Attention,
    /// Back from the heads.
    Output,
    Up,
    /// An activation; of experts if there are any.
    Activation,
    Down,
    /// The sum over ranks of tensor parallelism.
    Sum,
    Dispatch,
    ExpertsUp,
    ExpertsDown,
    Combine,
}

/// A forward operator that waits for its gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taped {
    pub(super) kind: Kind,
    pub(super) layer: u32,
    pub(super) half: usize,
    pub(super) exchange: u32,
    pub(super) node: u32,
}
