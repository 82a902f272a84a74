//! What a screen can show of a timeline: per track, lane and pixel, instead of per event.
//!
//! The events of a track are laid out in lanes as a call stack is: an event that starts while another is
//! open lies in the lane below it. So no two events of a lane overlap, whatever the track holds. An event at
//! least one pixel wide is a mark of its own; narrower ones are summed up pixel by pixel. A lane therefore
//! has at most two marks per pixel, however many events it has.

mod index;
mod pixels;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use arrow_buffer::ScalarBuffer;
use hashbrown::HashSet;

use pixels::Pixels;

pub use index::{TimelineIndex, show};

/// An event of a track, `[start, end)` in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Its name: any number that tells names apart.
    pub name: u32,
    /// Its first instant.
    pub start: i64,
    /// The instant after its last one.
    pub end: i64,
    /// What stands for the slice in the result.
    pub id: u32,
}

/// The part of time that is shown, and on how many pixels.
#[derive(Debug, Clone, Copy)]
pub struct View {
    start: i64,
    end: i64,
    pixels: u32,
    /// The shortest time that fills a pixel, ns.
    wide: i64,
}

impl View {
    /// The view of `[start, end)` on `pixels` pixels; `None` if there is no time or no pixel in it.
    pub fn new(start: i64, end: i64, pixels: u32) -> Option<Self> {
        if start >= end || pixels == 0 {
            return None;
        }
        let span = (i128::from(end) - i128::from(start)) as u128;
        let wide = i64::try_from(span.div_ceil(u128::from(pixels))).unwrap_or(i64::MAX);
        Some(Self { start, end, pixels, wide })
    }

    fn span(&self) -> i128 {
        i128::from(self.end) - i128::from(self.start)
    }

    /// Whether an event of so many ns fills a pixel.
    #[inline]
    fn is_wide(&self, length: i64) -> bool {
        length >= self.wide
    }

    /// Whether the end of `slice` lies behind the start of the view; an empty slice counts at its start.
    #[inline]
    fn shows_end_of(&self, slice: &Slice) -> bool {
        slice.end > self.start || slice.start == slice.end && slice.start == self.start
    }

    /// The pixel that `time`, inside the view, falls into.
    fn pixel(&self, time: i64) -> i64 {
        let since = i128::from(time) - i128::from(self.start);
        (since * i128::from(self.pixels) / self.span()) as i64
    }

    /// The first instant of a pixel.
    fn edge(&self, pixel: i64) -> i64 {
        let pixels = i128::from(self.pixels);
        let since = (i128::from(pixel) * self.span() + pixels - 1).div_euclid(pixels);
        (i128::from(self.start) + since) as i64
    }
}

/// What is drawn: one wide event, or all narrow events of a lane in one pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Track of its events.
    pub track: u32,
    /// Number of events that lie around its events.
    pub lane: u32,
    /// Start of the wide event, or of the first narrow one inside the pixel.
    pub start: i64,
    /// End of the wide event, or of the last narrow one inside the pixel.
    pub end: i64,
    /// Time between the two in which an event runs.
    pub busy: i64,
    /// Events that start in the pixel.
    pub events: u32,
    /// The longest event.
    pub longest: u32,
    /// Duration of the longest event.
    pub longest_ns: i64,
    /// The longest event of the name that takes most of the time.
    pub dominant: u32,
    /// Time that this name takes.
    pub dominant_ns: i64,
}

/// Events in columns, of which the first has a number that the others follow.
#[derive(Debug)]
pub struct Source {
    /// The number of the first event.
    pub first: u32,
    /// When the events start.
    pub starts: ScalarBuffer<i64>,
    /// How long they last; below 0 counts as 0.
    pub lengths: ScalarBuffer<i64>,
    /// Any numbers that tell names apart.
    pub names: ScalarBuffer<u32>,
}

/// The events of a trace, ready to be shown in any view.
#[derive(Debug, Default)]
pub struct Timeline {
    /// By the number of their first event.
    sources: Vec<Source>,
    tracks: Vec<Track>,
}

/// The events of a track by start, the longest first, and where a walk through them may begin.
#[derive(Debug, Default)]
struct Track {
    events: Vec<u32>,
    resumes: Vec<Resume>,
}

/// A place of a track with the events around it, so that a view needs nothing of what lies before.
#[derive(Debug)]
struct Resume {
    /// How many events come before.
    at: usize,
    /// When the event before begins.
    time: i64,
    /// The events that hold a lane here, from the outermost.
    open: Vec<u32>,
}

/// Events between two places at which a walk may begin.
const SPACING: usize = if cfg!(test) { 3 } else { 1024 };

impl Timeline {
    /// The timeline of the numbers of the events of each track, which come in any order.
    pub fn new(sources: Vec<Source>, tracks: Vec<Vec<u32>>) -> Self {
        let events = Events::of(&sources);
        let tracks = tracks.into_iter().map(|track| Track::new(track, &events)).collect();
        Self { sources, tracks }
    }

    /// The first start and the last end; `None` if there is nothing.
    pub fn extent(&self) -> Option<(i64, i64)> {
        let events = Events::of(&self.sources);
        let first = self.tracks.iter().filter_map(|track| track.events.first());
        let start = first.map(|&id| events.event(id).start).min()?;
        let end = self.tracks.iter().flat_map(|track| &track.events).map(|&id| events.event(id).end).max()?;
        Some((start, end))
    }

    /// What `view` shows, by track, lane and start; `None` if that is more than `most` marks. Of the tracks
    /// `only`, if some are named.
    ///
    /// Every event before its end has its say in which lane others lie, whether or not it is in view, so
    /// lanes do not change with the view. Of what lies long before, only what is still open is looked at.
    pub fn show(&self, view: &View, only: Option<&[u32]>, most: usize) -> Option<Vec<Mark>> {
        let events = Events::of(&self.sources);
        let mut marks = Vec::new();
        let wanted: Option<HashSet<&u32>> = only.map(|numbers| numbers.iter().collect());
        for (number, track) in (0..).zip(&self.tracks) {
            if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&number)) {
                continue;
            }
            let (mut stack, rest) = track.before(view, &events);
            let mut lanes: Vec<Pixels> = Vec::new();
            let mut finished = marks.len();
            let around: Vec<(usize, Slice)> =
                stack.open.iter().map(|open| events.event(open.id)).enumerate().collect();
            let inside = rest.iter().map(|&id| events.event(id)).take_while(|slice| slice.start < view.end);
            for (lane, slice) in around.into_iter().chain(inside.map(|slice| (stack.push(&slice), slice))) {
                if !view.shows_end_of(&slice) {
                    continue;
                }
                while lanes.len() <= lane {
                    lanes.push(Pixels::new(number, lanes.len() as u32));
                }
                if let Some(lane) = lanes.get_mut(lane) {
                    finished += lane.add(&slice, view);
                }
                if finished > most {
                    return None;
                }
            }
            marks.extend(lanes.into_iter().flat_map(Pixels::into_marks));
        }
        (marks.len() <= most).then_some(marks)
    }
}

/// The number of the first event of a source, and the starts, the lengths and the names of all.
type Columns<'a> = (u32, &'a [i64], &'a [i64], &'a [u32]);

/// The columns of the sources.
struct Events<'a>(Vec<Columns<'a>>);

impl<'a> Events<'a> {
    fn of(sources: &'a [Source]) -> Self {
        let columns = |source: &'a Source| -> Columns<'a> {
            (source.first, &source.starts, &source.lengths, &source.names)
        };
        Self(sources.iter().map(columns).collect())
    }

    /// The event of a number; an empty one where there is none.
    #[inline]
    fn event(&self, id: u32) -> Slice {
        // Sources are few.
        if let Some(&(first, starts, lengths, names)) = self.0.iter().rev().find(|source| source.0 <= id) {
            let at = (id - first) as usize;
            if let (Some(&start), Some(&length), Some(&name)) =
                (starts.get(at), lengths.get(at), names.get(at))
            {
                return Slice { name, start, end: start.saturating_add(length.max(0)), id };
            }
        }
        Slice { name: 0, start: 0, end: 0, id }
    }
}

impl Track {
    /// A track of these events, which come in any order.
    fn new(mut ids: Vec<u32>, events: &Events<'_>) -> Self {
        ids.sort_by_key(|&id| {
            let slice = events.event(id);
            (slice.start, Reverse(slice.end), id)
        });
        let mut resumes = Vec::new();
        let mut stack = Stack::default();
        let mut last = 0;
        for (before, &id) in ids.iter().enumerate() {
            let slice = events.event(id);
            stack.push(&slice);
            let at = before + 1;
            // What is open is kept once in as many events as are open, so that no depth takes more than the track.
            if at - last >= SPACING.max(stack.open.len()) {
                let open = stack.open.iter().map(|open| open.id).collect();
                resumes.push(Resume { at, time: slice.start, open });
                last = at;
            }
        }
        Self { events: ids, resumes }
    }

    /// What is open at the last place before `view` at which a walk may begin, and the events from there on.
    fn before(&self, view: &View, events: &Events<'_>) -> (Stack, &[u32]) {
        // What holds no lane at a place has ended by the time at which the event before it begins.
        let passed = self.resumes.partition_point(|resume| resume.time < view.start);
        let Some(resume) = passed.checked_sub(1).and_then(|last| self.resumes.get(last)) else {
            return (Stack::default(), &self.events);
        };
        let open = resume.open.iter().map(|&id| Open { end: events.event(id).end, id }).collect();
        (Stack { open }, self.events.get(resume.at..).unwrap_or_default())
    }
}

/// An event that holds a lane.
#[derive(Debug)]
struct Open {
    end: i64,
    id: u32,
}

/// The events that are open while a track is walked in order of (start, longest first).
#[derive(Debug, Default)]
struct Stack {
    open: Vec<Open>,
}

impl Stack {
    /// The lane of the next event.
    ///
    /// Only events on top are closed: one that ends earlier than an event in a lane below it keeps its
    /// lane taken until that event ends too.
    #[inline]
    fn push(&mut self, slice: &Slice) -> usize {
        while self.open.last().is_some_and(|open| open.end <= slice.start) {
            self.open.pop();
        }
        self.open.push(Open { end: slice.end, id: slice.id });
        self.open.len() - 1
    }
}
