//! What the generator writes, read back by code that shares nothing with it.

mod databases;
mod files;
mod layouts;
mod links;
mod reading;
mod truth;
