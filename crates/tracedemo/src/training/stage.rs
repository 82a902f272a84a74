//! The step of a stage of the pipeline.

use super::builder::Builder;
use super::options::{Parallel, Recompute, TrainingOptions};
use super::plan::{Instr, Kind, Pass, Plan, Scope, Taped, Thread};

impl Parallel {
    fn is_last(self, stage: u32) -> bool {
        stage + 1 == self.pp
    }
}

/// The step of a stage with so many layers.
pub(super) fn build(options: &TrainingOptions, stage: u32, layers: u32) -> Plan {
    let Parallel { tp, ep, .. } = options.parallel;
    let count = options.micro_batches();
    let mut builder = Builder {
        options,
        stage,
        layers,
        plan: Plan::default(),
        thread: Thread::Main,
        open: Vec::new(),
        modules: Vec::new(),
        pass: Pass { micro_batch: 0, is_backward: false },
        tape: vec![Vec::new(); count as usize],
        halves: if tp > 1 || ep > 1 { 2 } else { 1 },
        last: [None; 2],
        ready: [None; 2],
        gathered: vec![None; layers as usize],
        entered: None,
        reduced: Vec::new(),
    };
    builder.begin(Scope::Annotation, "ProfilerStep#", None);
    for pass in schedule(options.parallel.pp, stage, count) {
        builder.pass = pass;
        if pass.is_backward { builder.backward() } else { builder.forward() }
    }
    builder.optimizer();
    builder.plan.instrs.push(Instr::Synchronise(None));
    builder.end();
    builder.plan
}

/// The passes of a stage in the order of 1F1B.
fn schedule(stages: u32, stage: u32, count: u32) -> Vec<Pass> {
    let ahead = (stages - stage - 1).min(count);
    let pass = |micro_batch, is_backward| Pass { micro_batch, is_backward };
    let mut passes: Vec<Pass> = (0..ahead).map(|batch| pass(batch, false)).collect();
    for batch in 0..count {
        passes.extend((batch + ahead < count).then(|| pass(batch + ahead, false)));
        passes.push(pass(batch, true));
    }
    passes
}

impl Builder<'_> {
    fn scheduled(&mut self, body: impl FnOnce(&mut Self)) {
        let Pass { micro_batch, is_backward } = self.pass;
        let letter = if is_backward { "B" } else { "F" };
        let name = if self.options.parallel.pp > 1 {
            format!("PP:{}{letter}{micro_batch}", self.stage)
        } else {
            format!("micro_batch {micro_batch}")
        };
        self.annotation(&name, body);
    }

    fn forward(&mut self) {
        (self.last, self.ready) = ([None; 2], [None; 2]);
        if self.stage > 0 {
            self.ready = [Some(self.transfer(false, self.stage - 1)); 2];
        }
        self.scheduled(|b| {
            if b.stage == 0 {
                b.apply(Kind::Embedding, 0, 0, true);
            }
            for layer in 0..b.layers {
                b.use_parameters(layer);
                let module = b.begin(Scope::Module, &format!("nn.Module: TransformerBlock_{layer}"), None);
                b.modules.push(module);
                b.layer(layer);
                b.modules.pop();
                b.end();
                b.free_parameters(layer, "post_forward");
            }
            for half in 0..b.halves {
                b.apply(Kind::Add, b.layers - 1, half, true);
            }
        });
        if !self.options.parallel.is_last(self.stage) {
            self.transfer(true, self.stage + 1);
        }
    }

    fn backward(&mut self) {
        (self.last, self.ready) = ([None; 2], [None; 2]);
        if !self.options.parallel.is_last(self.stage) {
            self.ready = [Some(self.transfer(false, self.stage + 1)); 2];
        }
        self.scheduled(|b| {
            b.switch(Thread::Autograd);
            let taped = std::mem::take(&mut b.tape[b.pass.micro_batch as usize]);
            for layer in (0..b.layers).rev() {
                let of_layer: Vec<Taped> = taped.iter().filter(|one| one.layer == layer).copied().collect();
                b.entered = Some(layer);
                b.layer_backward(&of_layer);
                b.reduce_gradients(layer);
            }
            b.switch(Thread::Main);
        });
        if self.stage > 0 {
            self.transfer(true, self.stage - 1);
        }
    }

    /// The nodes of a layer, last first. The first product of a layer needs activations that are recomputed.
    fn layer_backward(&mut self, taped: &[Taped]) {
        let recompute = self.options.recompute;
        let product = taped.iter().rposition(|one| one.kind.is_last_product());
        for (index, one) in taped.iter().enumerate().rev() {
            let again: Vec<Taped> = match recompute {
                Recompute::Full if Some(index) == product => taped[..index].to_vec(),
                Recompute::Selective if one.kind == Kind::Attention => vec![*one],
                _ => Vec::new(),
            };
            let again = again.into_iter().filter(|one| one.kind != Kind::Embedding).collect();
            one.kind.backward(self, one, again);
        }
    }
}
