//! The events of frames on their tracks, to be shown.

use arrow_array::RecordBatch;
use hashbrown::HashMap;

use super::{Source, Timeline, View};
use crate::frame::{Frame, Result, invalid, records};
use crate::numbering::Numbering;

/// Collects the events of a trace, and says what a screen can show of them.
///
/// Events are numbered as they are added.
#[derive(Debug, Default)]
pub struct TimelineIndex {
    events: u32,
    /// The combinations of values by which the tracks of each kind are distinguished.
    kinds: HashMap<u32, Numbering>,
    /// The track of each kind and number.
    numbers: HashMap<(u32, u32), u32>,
    tracks: Vec<Track>,
    sources: Vec<Source>,
}

/// The first event of a track, when the earliest starts, and all of them.
#[derive(Debug)]
struct Track {
    event: u32,
    start: i64,
    events: Vec<u32>,
}

impl TimelineIndex {
    /// Adds events: columns `name` (null for none), `start_ns`, `dur_ns`, and integers of which those that
    /// agree in the columns `by` lie on one track, unless they are of another kind.
    pub fn add(&mut self, frame: &Frame, kind: u32, by: &[String]) -> Result<()> {
        let first = self.events;
        let events = u32::try_from(frame.height()).ok().and_then(|rows| first.checked_add(rows));
        self.events = events.ok_or_else(|| invalid("too many events"))?;
        let (starts, lengths) = (frame.i64_array("start_ns")?, frame.i64_array("dur_ns")?);
        let names = frame.u32_array("name")?;
        let places = self.kinds.entry(kind).or_default().add(frame, by.iter().map(String::as_str))?;
        let mut last = None;
        for ((id, &start), &place) in (first..).zip(starts.iter()).zip(&places) {
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
        self.sources.push(Source { first, starts, lengths, names });
        Ok(())
    }

    /// The tracks as they came: `event`, the first of each, and `start_ns`, the first start.
    pub fn tracks(&self) -> Result<RecordBatch> {
        records!(self.tracks, track => event: track.event, start_ns: track.start)
    }

    /// The timeline of all events, with the tracks in order of the number that each is given. The index is
    /// left without events.
    pub fn build(&mut self, numbers: Vec<u32>) -> Timeline {
        let tracks = self.tracks.iter_mut().map(|track| std::mem::take(&mut track.events));
        let mut numbered: Vec<(u32, Vec<u32>)> = numbers.into_iter().zip(tracks).collect();
        numbered.sort_by_key(|track| track.0);
        let tracks = numbered.into_iter().map(|track| track.1).collect();
        Timeline::new(std::mem::take(&mut self.sources), tracks)
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

/// What is seen of `[start_ns, end_ns)` of a timeline on so many pixels, a row for each [`Mark`](super::Mark);
/// nothing if that is more than `most` marks. Of the tracks `only`, if some are named.
pub fn show(
    timeline: &Timeline,
    (start_ns, end_ns): (i64, i64),
    pixels: u32,
    only: Option<&[u32]>,
    most: Option<usize>,
) -> Result<Option<RecordBatch>> {
    let view = View::new(start_ns, end_ns, pixels);
    let view = view.ok_or_else(|| invalid("a view needs time and at least one pixel"))?;
    let Some(marks) = timeline.show(&view, only, most.unwrap_or(usize::MAX)) else { return Ok(None) };
    let table = records!(marks, mark =>
        track: mark.track,
        lane: mark.lane,
        start_ns: mark.start,
        end_ns: mark.end,
        busy_ns: mark.busy,
        events: mark.events,
        longest: mark.longest,
        longest_ns: mark.longest_ns,
        dominant: mark.dominant,
        dominant_ns: mark.dominant_ns,
    )?;
    Ok(Some(table))
}
