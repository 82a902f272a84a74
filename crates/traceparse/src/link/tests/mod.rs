//! Tiny traces and what follows from them.
