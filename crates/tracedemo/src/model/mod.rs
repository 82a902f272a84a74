//! The traced program: one training step of a small transformer language model.

mod attention;
mod data;
mod kernels;
mod layers;
mod linear;
mod loss;
mod optimizer;
mod parallel;
mod step;
mod views;

pub(crate) use step::{BuiltModel, build};

use crate::tensor::Tensor;

/// Sizes of the model and of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) layers: u32,
    pub(crate) ranks: u32,
    pub(crate) batch: i64,
    pub(crate) sequence: i64,
    pub(crate) hidden: i64,
    pub(crate) heads: i64,
    pub(crate) vocabulary: i64,
}

impl Config {
    /// The demo's model, with that many blocks, on that many ranks.
    pub(crate) fn new(layers: u32, ranks: u32) -> Self {
        Self { layers, ranks, batch: 4, sequence: 1024, hidden: 1024, heads: 16, vocabulary: 32_000 }
    }

    /// Tokens of a batch.
    pub(crate) fn tokens(&self) -> i64 {
        self.batch * self.sequence
    }

    /// Shape of the hidden state.
    pub(crate) fn hidden_state(&self) -> Tensor {
        Tensor::new(&[self.batch, self.sequence, self.hidden])
    }
}

/// A parameter of the model.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) tensor: Tensor,
}

impl Param {
    /// Key of its gradient's memory.
    pub(crate) fn gradient_key(&self) -> String {
        format!("gradient of {}", self.name)
    }
}

/// The model while its step is written down.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) config: Config,
    /// Parameters in the order in which the forward pass meets them.
    pub(crate) params: Vec<Param>,
}

impl Model {
    /// Adds a parameter.
    pub(crate) fn param(&mut self, name: &str, dims: &[i64]) -> Param {
        let param = Param { name: name.to_owned(), tensor: Tensor::new(dims) };
        self.params.push(param.clone());
        param
    }
}
