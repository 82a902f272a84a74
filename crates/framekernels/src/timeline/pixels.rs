//! Sums up the narrow events of a lane, pixel by pixel.

use hashbrown::HashMap;

use super::{Mark, Slice, View};

/// Time that a name takes in a pixel, and its longest event there.
#[derive(Debug, Clone, Copy)]
struct Share {
    busy: i64,
    longest: u32,
    longest_ns: i64,
}

/// A lane whose events come in order.
#[derive(Debug)]
pub(super) struct Pixels {
    marks: Vec<Mark>,
    /// The mark of the pixel that is being filled.
    open: Option<(i64, Mark)>,
    /// The pixel that was looked up last, and its first instant and that of the next.
    last: (i64, i64, i64),
    names: HashMap<u32, Share>,
    track: u32,
    lane: u32,
}

impl Pixels {
    pub(super) fn new(track: u32, lane: u32) -> Self {
        Self { marks: Vec::new(), open: None, last: (0, 0, 0), names: HashMap::new(), track, lane }
    }

    /// Adds the next event, which touches the view; says how many marks that finishes.
    pub(super) fn add(&mut self, slice: &Slice, view: &View) -> usize {
        let finished = self.marks.len();
        self.put(slice, view);
        self.marks.len() - finished
    }

    fn put(&mut self, slice: &Slice, view: &View) {
        let length = slice.end.saturating_sub(slice.start);
        if view.is_wide(length) {
            self.close();
            self.marks.push(self.mark(slice, slice.start, slice.end));
            return;
        }
        let (start, end) = (slice.start.max(view.start), slice.end.min(view.end));
        let (pixel, edge) = self.pixel_of(start, view);
        self.add_part(slice, pixel, start, end.min(edge), slice.start >= view.start);
        if end > edge {
            self.add_part(slice, pixel + 1, edge, end, false);
        }
    }

    /// The pixel that `time` falls into, and where the next begins. Most events share that of the last.
    fn pixel_of(&mut self, time: i64, view: &View) -> (i64, i64) {
        let (_, from, until) = self.last;
        if time < from || time >= until {
            let pixel = view.pixel(time);
            self.last = (pixel, view.edge(pixel), view.edge(pixel + 1));
        }
        let (pixel, _, until) = self.last;
        (pixel, until)
    }

    fn add_part(&mut self, slice: &Slice, pixel: i64, start: i64, end: i64, is_start: bool) {
        if self.open.as_ref().is_none_or(|&(open, _)| open != pixel) {
            self.close();
            let mark = Mark { busy: 0, events: 0, ..self.mark(slice, start, end) };
            self.open = Some((pixel, mark));
        }
        let (length, part) = (slice.end.saturating_sub(slice.start), end - start);
        let share = Share { busy: 0, longest: slice.id, longest_ns: length };
        let share = self.names.entry(slice.name).or_insert(share);
        share.busy += part;
        if length > share.longest_ns {
            (share.longest, share.longest_ns) = (slice.id, length);
        }
        if let Some((_, mark)) = &mut self.open {
            mark.end = mark.end.max(end);
            mark.busy += part;
            mark.events += u32::from(is_start);
            if length > mark.longest_ns {
                (mark.longest, mark.longest_ns) = (slice.id, length);
            }
        }
    }

    /// Finishes the pixel that is being filled.
    fn close(&mut self) {
        let Some((_, mut mark)) = self.open.take() else { return };
        // Equal shares go to the longer event, then to the one that comes first.
        let order = |share: &&Share| (share.busy, share.longest_ns, std::cmp::Reverse(share.longest));
        if let Some(share) = self.names.values().max_by_key(order) {
            (mark.dominant, mark.dominant_ns) = (share.longest, share.busy);
        }
        self.names.clear();
        self.marks.push(mark);
    }

    /// The mark of one event.
    fn mark(&self, slice: &Slice, start: i64, end: i64) -> Mark {
        let length = slice.end.saturating_sub(slice.start);
        Mark {
            track: self.track,
            lane: self.lane,
            start,
            end,
            busy: end.saturating_sub(start),
            events: 1,
            longest: slice.id,
            longest_ns: length,
            dominant: slice.id,
            dominant_ns: length,
        }
    }

    pub(super) fn into_marks(mut self) -> Vec<Mark> {
        self.close();
        self.marks
    }
}
