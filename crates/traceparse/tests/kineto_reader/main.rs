//! Kineto traces of every layout, and with every kind of damage, against the tables they must give.
#![allow(clippy::unwrap_used, reason = "what only tests call may panic like a test")]

mod compressed;
mod damage;
mod exporters;
mod layouts;
mod limits;
mod merged;
mod reading;
mod refused;
mod slow;
mod splits;
mod unescaped;
mod writer;
