//! The traced program: one training step of a small transformer language model.

mod attention;
mod data;
mod kernels;
mod layers;
mod linear;
mod loss;
mod optimizer;
mod parameters;
mod step;
mod views;

pub(crate) use parameters::Config;
pub(crate) use step::{BuiltModel, build};
