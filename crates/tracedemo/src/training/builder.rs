//! Writes the plan of a step, operator by operator.

use super::mesh::Dimension;
use super::options::{TrainingFault, TrainingOptions};
use super::plan::{
    CHOICES, Collective, Exchange, HIDDEN, Inputs, Instr, Op, Partners, Pass, Plan, SEQUENCE, SEQUENCES,
    Scope, Stream, Taped, Thread, Work,
};
use crate::gpu::Kernel;
use crate::model::kernels::{all_gather, all_reduce};

/// Writes a [`Plan`].
pub(super) struct Builder<'a> {
    pub(super) options: &'a TrainingOptions,
    pub(super) stage: u32,
    pub(super) layers: u32,
    pub(super) plan: Plan,
    pub(super) thread: Thread,
    pub(super) open: Vec<u32>,
    pub(super) modules: Vec<u32>,
    pub(super) pass: Pass,
    /// Forward operators of each micro-batch that are not differentiated yet.
    pub(super) tape: Vec<Vec<Taped>>,
    /// Parts of a micro-batch that are computed in turns, so that one hides the communication of the other.
    pub(super) halves: usize,
    /// The last operation of each half.
    pub(super) last: [Option<u32>; 2],
    /// The collective that the next operation of each half waits for.
    pub(super) ready: [Option<u32>; 2],
    /// All-gathers whose parameters are not used yet, by layer.
    pub(super) gathered: Vec<Option<u32>>,
    /// The layer that the backward pass enters with its next node.
    pub(super) entered: Option<u32>,
    /// Reductions of gradients.
    pub(super) reduced: Vec<u32>,
}

impl Builder<'_> {
    pub(super) fn begin(&mut self, scope: Scope, name: &str, inputs: Option<Inputs>) -> u32 {
        let index = self.plan.ops.len() as u32;
        let module = self.modules.last().copied();
        let (name, thread) = (name.to_owned(), self.thread);
        self.plan.ops.push(Op {
            scope,
            name,
            inputs,
            node: None,
            exchange: None,
            thread,
            module,
            collective: None,
        });
        self.plan.instrs.push(Instr::Begin(index));
        if scope == Scope::Operator {
            self.open.push(index);
        }
        index
    }

    pub(super) fn end(&mut self) {
        self.plan.instrs.push(Instr::End);
    }

    /// An operator around `body`.
    pub(super) fn op<R>(
        &mut self,
        name: &str,
        inputs: Option<Inputs>,
        body: impl FnOnce(&mut Self, u32) -> R,
    ) -> R {
        let index = self.begin(Scope::Operator, name, inputs);
        let made = body(self, index);
        self.open.pop();
        self.end();
        made
    }

    pub(super) fn annotation<R>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> R) -> R {
        self.begin(Scope::Annotation, name, None);
        let made = body(self);
        self.end();
        made
    }

    /// A forward operator with a gradient.
    pub(super) fn forward_op(
        &mut self,
        name: &str,
        inputs: Inputs,
        exchange: Option<Exchange>,
        body: impl FnOnce(&mut Self),
    ) -> u32 {
        let number = self.plan.nodes;
        self.plan.nodes += 1;
        self.op(name, Some(inputs), |b, op| {
            b.plan.ops[op as usize].node = Some((number, false));
            b.plan.ops[op as usize].exchange = exchange;
            body(b);
        });
        number
    }

    /// The node of the backward pass that belongs to a forward operator.
    pub(super) fn node(&mut self, name: &str, number: u32, body: impl FnOnce(&mut Self)) {
        let is_gradient = Some((number, true));
        self.op(&format!("autograd::engine::evaluate_function: {name}"), None, |b, op| {
            b.plan.ops[op as usize].node = is_gradient;
            b.op(name, None, |b, op| {
                b.plan.ops[op as usize].node = is_gradient;
                if let Some(layer) = b.entered.take() {
                    b.use_parameters(layer);
                }
                body(b);
            });
        });
    }

    /// An operator that launches kernels which compute.
    pub(super) fn computing(
        &mut self,
        half: usize,
        name: &str,
        inputs: Inputs,
        exchange: Option<Exchange>,
        kernels: Vec<Kernel>,
    ) {
        self.op(name, Some(inputs), |b, op| {
            b.plan.ops[op as usize].exchange = exchange;
            kernels.into_iter().for_each(|kernel| b.compute(half, kernel, exchange));
        });
    }

    pub(super) fn compute(&mut self, half: usize, kernel: Kernel, exchange: Option<Exchange>) {
        let after = self.ready[half].take().into_iter().collect();
        let work = self.launch(kernel, Stream::Compute, after, None);
        self.plan.works[work as usize].pass = Some(self.pass);
        self.plan.works[work as usize].exchange = exchange;
        self.last[half] = Some(work);
    }

    pub(super) fn launch(
        &mut self,
        kernel: Kernel,
        stream: Stream,
        after: Vec<u32>,
        collective: Option<Collective>,
    ) -> u32 {
        let index = self.plan.works.len() as u32;
        let op = *self.open.last().expect("operators launch");
        for &awaited in &after {
            self.plan.works[awaited as usize].is_awaited = true;
        }
        let (thread, is_awaited) = (self.thread, false);
        let (pass, exchange) = (None, None);
        self.plan.works.push(Work {
            kernel,
            stream,
            after,
            is_awaited,
            op,
            thread,
            pass,
            exchange,
            collective,
        });
        self.plan.instrs.push(Instr::Launch(index));
        index
    }

    /// A collective after some operations, with the operators that call it.
    pub(super) fn communicate(
        &mut self,
        operator: &str,
        kernel: Kernel,
        stream: Stream,
        after: Vec<u32>,
        (collective, exchange): (Collective, Option<Exchange>),
    ) -> u32 {
        let inputs = match exchange {
            Some(_) => {
                let rows = [format!("[>, {HIDDEN}]"), format!("[<, {HIDDEN}]")];
                Inputs::tensors(&[&rows[0], &rows[1], "[]", "[]", "[]"]).values(r#"["", "", "", ">>", "<<"]"#)
            }
            None => Inputs::of(&[&[collective.in_elements]]),
        };
        self.op(operator, Some(inputs), |b, op| {
            b.plan.ops[op as usize].exchange = exchange;
            b.op("record_param_comms", None, |b, op| {
                let made = b.launch(kernel, stream, after, Some(collective));
                b.plan.ops[op as usize].collective = Some(made);
                b.plan.works[made as usize].exchange = exchange;
                made
            })
        })
    }

    /// Tokens of a half.
    pub(super) fn tokens(&self) -> i64 {
        SEQUENCES * SEQUENCE / self.halves as i64
    }

    /// Sums a half over the ranks of tensor parallelism.
    pub(super) fn sum(&mut self, half: usize) {
        let elements = self.tokens() * HIDDEN;
        let collective = Collective {
            dimension: Dimension::Tp,
            name: "allreduce",
            in_elements: elements,
            out_elements: elements,
            partners: Partners::Group,
        };
        let kernel = all_reduce(elements, self.options.parallel.tp);
        let after = self.computed(half);
        let sum = self.communicate("c10d::allreduce_", kernel, Stream::Tensor, after, (collective, None));
        self.ready[half] = Some(sum);
        if self.options.fault == Some(TrainingFault::ExposedTensorParallelism) {
            self.ready = [Some(sum); 2];
        }
    }

    /// What a collective of a half waits for.
    fn computed(&self, half: usize) -> Vec<u32> {
        self.last[half].into_iter().chain(self.ready[half]).collect()
    }

    /// Takes the collective that the next operation of a half would wait for.
    pub(super) fn take_ready(&mut self, half: usize) -> Option<u32> {
        self.ready[half].take()
    }

    /// Lets the next operation of a half wait for a collective.
    pub(super) fn put_ready(&mut self, half: usize, collective: Option<u32>) {
        self.ready[half] = collective;
    }

    /// Sends the tokens of a half to their experts, or back.
    pub(super) fn exchange(&mut self, half: usize, exchange: Exchange) {
        let ranks = self.options.parallel.ep;
        let elements = self.tokens() * CHOICES * HIDDEN;
        let collective = Collective {
            dimension: Dimension::Ep,
            name: "all_to_allv",
            in_elements: elements,
            out_elements: elements,
            partners: Partners::Group,
        };
        let name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)".to_owned();
        let kernel = Kernel { name, ..all_gather(elements, ranks) };
        let after = self.computed(half);
        let how = (collective, Some(exchange));
        let exchanged = self.communicate("c10d::alltoall_base_", kernel, Stream::Experts, after, how);
        self.ready[half] = Some(exchanged);
    }

    /// Sends to or receives from a neighbour in the pipeline.
    pub(super) fn transfer(&mut self, is_send: bool, other: u32) -> u32 {
        let elements = SEQUENCES * SEQUENCE * HIDDEN / i64::from(self.options.parallel.tp);
        let (operator, name) = if is_send { ("c10d::send", "send") } else { ("c10d::recv_", "recv") };
        let collective = Collective {
            dimension: Dimension::Pp,
            name,
            in_elements: elements,
            out_elements: elements,
            partners: Partners::Stage { other, pass: self.pass },
        };
        let kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)".to_owned();
        // Both directions of a ring of two.
        let kernel = Kernel { name: kernel, ..all_gather(2 * elements, 2) };
        let stream = match (self.pass.is_backward, is_send) {
            (false, false) => Stream::ForwardReceive,
            (false, true) => Stream::ForwardSend,
            (true, false) => Stream::BackwardReceive,
            (true, true) => Stream::BackwardSend,
        };
        let after = if is_send { self.last.into_iter().flatten().collect() } else { Vec::new() };
        self.communicate(operator, kernel, stream, after, (collective, None))
    }

    pub(super) fn switch(&mut self, thread: Thread) {
        self.thread = thread;
        self.plan.instrs.push(Instr::Switch);
    }
}
