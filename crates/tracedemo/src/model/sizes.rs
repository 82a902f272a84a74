//! Sizes of the model and of a batch.

use crate::tensor::{DType, Tensor};

pub(crate) const BATCH: i64 = 4;
pub(crate) const SEQUENCE: i64 = 1024;
pub(crate) const TOKENS: i64 = BATCH * SEQUENCE;
pub(crate) const HIDDEN: i64 = 1024;
pub(crate) const HEADS: i64 = 16;
pub(crate) const VOCABULARY: i64 = 32_000;

/// Tokens or targets of a batch.
pub(crate) fn tokens() -> Tensor {
    Tensor::of(DType::LONG, &[BATCH, SEQUENCE])
}

/// The hidden state of a batch.
pub(crate) fn hidden_state() -> Tensor {
    Tensor::new(&[BATCH, SEQUENCE, HIDDEN])
}
