//! The steps of a rank, and all ranks of a job in step: when their collectives end, exactly.

use std::io;
use std::iter;
use std::sync::Arc;

use crate::gpu::GPUS;
use crate::job::Meetings;
use crate::library::Group;
use crate::model::BuiltModel;
use crate::options::DemoOptions;
use crate::rank::{FIRST_STEP, begin, timeline};
use crate::timeline::{Records, Timeline};

/// The ranks of a job with a cause, played side by side.
///
/// A collective ends when the rank that is last to it is done, and that depends on the collectives before it. The
/// ranks play a step again until no end changes, at most once for each collective.
pub(crate) struct Cohort<'m> {
    model: &'m BuiltModel,
    ranks: Vec<Timeline<'m>>,
    /// Of each step so far.
    met: Vec<Arc<Meetings>>,
}

impl<'m> Cohort<'m> {
    /// The ranks of those options, which end and begin nothing at other times than `model` does; none without a
    /// cause or without other ranks.
    pub(crate) fn of(options: &DemoOptions, model: &'m BuiltModel) -> Option<Self> {
        if options.cause.is_none() || options.ranks < 2 {
            return None;
        }
        let rank = |rank| {
            let mut timeline = timeline(&DemoOptions { rank, ..options.clone() }, model, 0);
            begin(&mut timeline);
            timeline
        };
        Some(Self { model, ranks: (0..options.ranks).map(rank).collect(), met: Vec::new() })
    }

    /// When the collectives of a step end.
    pub(crate) fn meetings(&mut self, step: u64) -> Arc<Meetings> {
        let at = (step - FIRST_STEP) as usize;
        while self.met.len() <= at {
            self.play_next();
        }
        Arc::clone(&self.met[at])
    }

    fn play_next(&mut self) {
        let step = FIRST_STEP + self.met.len() as u64;
        let plan = self.model.plan(step);
        let hosts = self.ranks.len().div_ceil(GPUS as usize);
        let mut ends_ns: Meetings = vec![vec![0; hosts]; plan.collectives as usize];
        loop {
            let met = Arc::new(ends_ns.clone());
            let play = |rank: &Timeline<'m>| {
                let mut rank = rank.clone();
                rank.meet(Arc::clone(&met));
                rank.play(plan, step);
                rank.take_records();
                rank
            };
            let played: Vec<Timeline<'_>> = self.ranks.iter().map(play).collect();
            for (rank, timeline) in played.iter().enumerate() {
                let own = iter::zip(&timeline.collective_ends_ns, &timeline.collective_groups);
                for (ends_ns, (&end_ns, &group)) in ends_ns.iter_mut().zip(own) {
                    let host = rank / GPUS as usize;
                    let members = if group == Group::OF_HOST { host..host + 1 } else { 0..hosts };
                    ends_ns[members].iter_mut().for_each(|latest| *latest = end_ns.max(*latest));
                }
            }
            if ends_ns == *met {
                self.ranks = played;
                self.met.push(met);
                return;
            }
        }
    }
}

/// Plays the steps, and what comes before the first and after the last; `write` takes the records of each
/// and returns the bytes so far.
///
/// Ends after `options.steps`, or with the step in which `size_bytes` are reached. `progress` is called with
/// the bytes after each step; false stops.
pub(crate) fn play_steps(
    options: &DemoOptions,
    size_bytes: u64,
    timeline: &mut Timeline<'_>,
    mut cohort: Option<&mut Cohort<'_>>,
    progress: &mut dyn FnMut(u64) -> bool,
    mut write: impl FnMut(&Records) -> io::Result<u64>,
) -> io::Result<()> {
    let model = timeline.model;
    begin(timeline);
    for step in FIRST_STEP.. {
        if let Some(cohort) = &mut cohort {
            timeline.meet(cohort.meetings(step));
        }
        timeline.play(model.plan(step), step);
        let written = write(&timeline.take_records())?;
        timeline.ledger.settle(timeline.now_ns());
        if !progress(written) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by the caller"));
        }
        if options.steps.map_or(written >= size_bytes, |wanted| step + 1 - FIRST_STEP >= wanted) {
            break;
        }
    }
    timeline.play(&model.epilogue, FIRST_STEP);
    write(&timeline.take_records())?;
    Ok(())
}
