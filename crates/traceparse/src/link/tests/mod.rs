//! Tiny traces and what follows from them.

mod launching;
mod random;
mod scale;
mod stepping;
mod tiny;
mod tracks;
mod training;
mod trees;
