//! Shows timelines, for frames that Python hands over as Arrow IPC streams.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt32Type};
use arrow_array::{ArrayRef, Int64Array, UInt32Array};
use arrow_ipc::reader::StreamReader;
use pyo3::prelude::*;
use traceparse::timeline::{Mark, Slice, Timeline, View};
use traceparse::{Error, ErrorKind};

use crate::errors;
use crate::projection::{Outcome, column, refused, table};
use crate::table::ArrowTable;
use crate::watch;

/// Collects the events of a trace, and says what a screen can show of them.
#[pyclass(module = "kernelscope._traceparse")]
#[derive(Default)]
pub(crate) struct TimelineIndex {
    waiting: Vec<Slice>,
    timeline: Arc<Timeline>,
}

#[pymethods]
impl TimelineIndex {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds events: columns `track`, `name`, `id`, `start_ns` and `end_ns`, none null.
    fn add(&mut self, py: Python<'_>, stream: &[u8]) -> PyResult<()> {
        read_slices(stream, &mut self.waiting).map_err(|error| errors::to_python(py, &refused(&error)))
    }

    /// Sorts what was added; nothing can be added afterwards.
    fn build(&mut self, py: Python<'_>) -> PyResult<()> {
        let slices = std::mem::take(&mut self.waiting);
        self.timeline = watch::run(py, None, move |_| Ok(Arc::new(Timeline::new(slices))))?;
        Ok(())
    }

    /// What is seen of `[start_ns, end_ns)` on so many pixels.
    fn show(&self, py: Python<'_>, start_ns: i64, end_ns: i64, pixels: u32) -> PyResult<ArrowTable> {
        let timeline = Arc::clone(&self.timeline);
        watch::run(py, None, move |_| {
            let view = View::new(start_ns, end_ns, pixels).ok_or_else(|| {
                Error::new(ErrorKind::InvalidArgument, "a view needs time and at least one pixel")
            })?;
            mark_table(&timeline.show(&view)).map_err(|error| refused(&error))
        })
    }
}

fn read_slices(stream: &[u8], slices: &mut Vec<Slice>) -> Outcome<()> {
    for batch in StreamReader::try_new(stream, None)? {
        let batch = batch?;
        let (start, end) = (column::<Int64Type>(&batch, "start_ns")?, column::<Int64Type>(&batch, "end_ns")?);
        let (track, name) = (column::<UInt32Type>(&batch, "track")?, column::<UInt32Type>(&batch, "name")?);
        let id = column::<UInt32Type>(&batch, "id")?;
        slices.extend((0..batch.num_rows()).map(|row| Slice {
            track: track.value(row),
            name: name.value(row),
            start: start.value(row),
            end: end.value(row),
            id: id.value(row),
        }));
    }
    Ok(())
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
