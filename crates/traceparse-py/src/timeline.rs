//! Shows timelines.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::ArrowError;
use framekernels::numbering::Numbering;
use framekernels::timeline::{Mark, Source, Timeline, View};
use hashbrown::HashMap;
use pyo3::prelude::*;

use crate::answer::{answer, answer_watched};
use crate::frame::{Frame, Outcome};
use crate::numbering::add_part;
use crate::table::{ArrowTable, table};

/// An event without a name.
const NAMELESS: u32 = u32::MAX;

/// Events whose tracks are told apart at a time.
const PART_ROWS: usize = 1 << 17;

/// Collects the events of a trace, and says what a screen can show of them.
///
/// Events are numbered as they are added.
#[pyclass(module = "kernelscope._traceparse")]
#[derive(Default)]
pub(crate) struct TimelineIndex {
    events: u32,
    /// The tracks of each kind, whose numbers count in that kind.
    kinds: HashMap<u32, Kind>,
    /// The track of each kind and number.
    numbers: HashMap<(u32, u32), u32>,
    tracks: Vec<Track>,
    sources: Vec<Source>,
    timeline: Arc<Timeline>,
}

/// A kind of tracks, and the columns by which they were told apart last.
#[derive(Default)]
struct Kind {
    by: Vec<String>,
    numbering: Numbering,
}

/// The first event of a track, when the earliest starts, and all of them.
struct Track {
    event: u32,
    start: i64,
    events: Vec<u32>,
}

#[pymethods]
impl TimelineIndex {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds events: columns `name` (null for none), `start_ns`, `dur_ns`, and integers of which those that
    /// agree in the columns `by` lie on one track, unless they are of another kind.
    fn add(&mut self, py: Python<'_>, frame: Frame, kind: u32, by: Vec<String>) -> PyResult<()> {
        self.kinds.entry(kind).or_default().by = by;
        answer(py, || self.read(frame, kind))
    }

    /// The tracks as they came: `event`, the first of each, and `start_ns`, the first start.
    fn tracks(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("event", Arc::new(self.tracks.iter().map(|track| track.event).collect::<UInt32Array>())),
            ("start_ns", Arc::new(self.tracks.iter().map(|track| track.start).collect::<Int64Array>())),
        ];
        answer(py, || table(columns))
    }

    /// Sorts what was added, the tracks by the number that each is given; nothing can be added afterwards.
    /// The result is the first start and the last end.
    fn build(&mut self, py: Python<'_>, numbers: Vec<u32>) -> PyResult<Option<(i64, i64)>> {
        let tracks = self.tracks.iter_mut().map(|track| std::mem::take(&mut track.events));
        let mut numbered: Vec<(u32, Vec<u32>)> = numbers.into_iter().zip(tracks).collect();
        numbered.sort_by_key(|track| track.0);
        let tracks: Vec<Vec<u32>> = numbered.into_iter().map(|track| track.1).collect();
        let sources = std::mem::take(&mut self.sources);
        self.timeline = answer_watched(py, move || Ok(Arc::new(Timeline::new(sources, tracks))))?;
        Ok(self.timeline.extent())
    }

    /// What is seen of `[start_ns, end_ns)` on so many pixels; nothing if that is more than `most` marks.
    #[pyo3(signature = (start_ns, end_ns, pixels, most=None))]
    fn show(
        &self,
        py: Python<'_>,
        start_ns: i64,
        end_ns: i64,
        pixels: u32,
        most: Option<usize>,
    ) -> PyResult<Option<ArrowTable>> {
        let timeline = Arc::clone(&self.timeline);
        answer_watched(py, move || {
            let view = View::new(start_ns, end_ns, pixels).ok_or_else(|| {
                let message = "a view needs time and at least one pixel";
                ArrowError::InvalidArgumentError(message.to_owned())
            })?;
            timeline.show(&view, most.unwrap_or(usize::MAX)).map(|marks| mark_table(&marks)).transpose()
        })
    }
}

impl TimelineIndex {
    fn read(&mut self, frame: Frame, kind: u32) -> Outcome<()> {
        let first = self.events;
        let events = u32::try_from(frame.height()).ok().and_then(|rows| first.checked_add(rows));
        let too_many = || ArrowError::InvalidArgumentError("too many events".to_owned());
        self.events = events.ok_or_else(too_many)?;
        let source = Source {
            first,
            starts: frame.kept_numbers("start_ns")?,
            lengths: frame.kept_numbers("dur_ns")?,
            names: frame.kept_links("name", NAMELESS)?,
        };
        let mut done = 0;
        for batch in frame.parts() {
            for from in (0..batch.num_rows()).step_by(PART_ROWS) {
                let part = batch.slice(from, PART_ROWS.min(batch.num_rows() - from));
                self.divide(&part, kind, first + done as u32, source.starts.values().get(done..))?;
                done += part.num_rows();
            }
        }
        self.sources.push(source);
        Ok(())
    }

    /// Puts events, whose numbers follow `first`, on their tracks.
    fn divide(&mut self, part: &RecordBatch, kind: u32, first: u32, starts: Option<&[i64]>) -> Outcome<()> {
        let Kind { by, numbering } = self.kinds.entry(kind).or_default();
        let places = add_part(part, by, numbering)?;
        let mut last = None;
        for ((id, &start), &place) in (first..).zip(starts.unwrap_or_default()).zip(&places) {
            let track = match last {
                Some((number, track)) if number == place => track,
                _ => self.track(kind, place, id, start),
            };
            last = Some((place, track));
            if let Some(known) = self.tracks.get_mut(track as usize) {
                known.start = known.start.min(start);
                known.events.push(id);
            }
        }
        Ok(())
    }

    /// The track of a kind with that number; if it is new, `event` is its first.
    fn track(&mut self, kind: u32, number: u32, event: u32, start: i64) -> u32 {
        let next = self.tracks.len() as u32;
        let track = *self.numbers.entry((kind, number)).or_insert(next);
        if track == next {
            self.tracks.push(Track { event, start, events: Vec::new() });
        }
        track
    }
}

fn mark_table(marks: &[Mark]) -> Outcome<ArrowTable> {
    let small =
        |value: fn(&Mark) -> u32| -> ArrayRef { Arc::new(marks.iter().map(value).collect::<UInt32Array>()) };
    let large =
        |value: fn(&Mark) -> i64| -> ArrayRef { Arc::new(marks.iter().map(value).collect::<Int64Array>()) };
    table(vec![
        ("track", small(|mark| mark.track)),
        ("lane", small(|mark| mark.lane)),
        ("start_ns", large(|mark| mark.start)),
        ("end_ns", large(|mark| mark.end)),
        ("busy_ns", large(|mark| mark.busy)),
        ("events", small(|mark| mark.events)),
        ("longest", small(|mark| mark.longest)),
        ("longest_ns", large(|mark| mark.longest_ns)),
        ("dominant", small(|mark| mark.dominant)),
        ("dominant_ns", large(|mark| mark.dominant_ns)),
    ])
}
