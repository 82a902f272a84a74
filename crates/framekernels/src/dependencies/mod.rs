//! The graph of what each event waited for, from which the critical path and predictions follow.
//!
//! A node is the start or the end of an event, and an edge says that a node came no earlier than another one
//! and the length of the edge. Threads and streams are lanes: the nodes of a lane are neighbours, so that the
//! edge between two of them needs no memory but for its length. Other edges are between lanes: launches,
//! synchronisation, events, and threads that wait for each other.
//!
//! A node has one edge that was satisfied last. It takes up the whole time between its nodes, so that every node
//! is at the latest of its edges: a replay of the unchanged graph gives every recorded time. All other edges
//! have the length that is typical for their kind, and at most the recorded one.

mod edges;
mod events;
mod graph;
mod handed;
mod lanes;
mod longest;
mod marks;
mod order;
mod path;
mod release;
mod replay;
mod terms;
#[cfg(test)]
mod tests;

pub use graph::DependencyGraph;
pub use longest::longest_paths;
pub use replay::Replay;

/// What an edge between two nodes stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// From one node of a thread to the next.
    Host,
    /// A GPU operation from its start to its end.
    Execution,
    /// A GPU operation starts after the one before it on its stream.
    Stream,
    /// A GPU operation starts after the call that launched it.
    Launch,
    /// A call returns after the GPU operation that it waits for.
    Synchronisation,
    /// A launch returns after a GPU operation has left the full queue of its stream.
    Queue,
    /// A GPU operation starts after one of another stream.
    Event,
    /// A thread goes on after another one.
    Thread,
    /// A wait whose cause was not recorded.
    Unknown,
}

/// The names of the kinds, by number.
pub const EDGES: [&str; 9] =
    ["host", "execution", "stream", "launch", "synchronisation", "queue", "event", "thread", "unknown"];

/// The length of an edge that does not count, so that it is never the latest.
const NO_EDGE: i64 = i64::MIN / 4;
