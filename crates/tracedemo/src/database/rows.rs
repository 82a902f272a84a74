//! Turns events into rows: INSERTs with named parameters, bound to what an event holds.

use std::collections::HashMap;
use std::fmt::Write as _;

use rusqlite::types::Value;
use rusqlite::{Connection, Statement};

use crate::event::{Arg, Record, Shape};
use crate::library::Process;

/// Hardware and virtual machine of every id of nsys.
const MACHINE: i64 = 1 << 48;
/// Texts that the map of known ones may hold; those of operators rarely repeat.
const MOST_STRINGS: usize = 1 << 16;

/// The categories of events that are NVTX ranges.
pub(super) const RANGES: &[&str] = &["cpu_op", "user_annotation"];

/// Categories of events, and a row that each of them makes; `process` and `end` stand for the beginning of
/// a process and the end of the recording.
pub(super) type Inserts = &'static [(&'static [&'static str], &'static str)];

/// What a recorder's database looks like.
pub(super) struct Recorder {
    /// Its tables, and what they hold in every recording.
    pub(super) schema: &'static str,
    /// Its table of texts.
    pub(super) texts: &'static str,
    pub(super) inserts: Inserts,
}

/// Value of a parameter.
pub(super) enum Cell {
    Start,
    End,
    Correlation,
    /// Running number over all events that have one.
    Number,
    /// Text of a range.
    Text,
    /// Its number in the table of texts.
    TextId,
    /// The same for all events of a shape.
    Same(Value),
}

/// The rows of an event: which INSERT, and its parameters in order.
pub(super) type Rows = Vec<(usize, Vec<Cell>)>;

/// A database on its way into the file.
pub(super) struct Database<'c> {
    inserts: Vec<(&'static [&'static str], Statement<'c>)>,
    insert_text: Statement<'c>,
    texts: HashMap<String, i64>,
    number: i64,
}

impl<'c> Database<'c> {
    /// Makes the tables.
    pub(super) fn new(connection: &'c Connection, recorder: &Recorder) -> rusqlite::Result<Self> {
        connection.execute_batch(recorder.schema)?;
        let inserts =
            recorder.inserts.iter().map(|&(categories, sql)| Ok((categories, connection.prepare(sql)?)));
        Ok(Self {
            inserts: inserts.collect::<rusqlite::Result<_>>()?,
            insert_text: connection
                .prepare(&format!("INSERT INTO {} (value) VALUES (?1)", recorder.texts))?,
            texts: HashMap::new(),
            number: 0,
        })
    }

    /// Writes what stands beside the events: `process` before those of a process, `end` after all.
    pub(super) fn write_once(
        &mut self,
        process: Process,
        category: &'static str,
        end_ns: i64,
    ) -> rusqlite::Result<()> {
        let shape = Shape::slice(category, "python3", process.pid, process.pid);
        let rows = self.rows(process, &shape)?;
        self.write(&rows, &shape, &Record { shape: 0, start_ns: 0, dur_ns: end_ns, values: [0; 3] })
    }

    /// The rows of the events of a shape.
    pub(super) fn rows(&mut self, process: Process, shape: &Shape) -> rusqlite::Result<Rows> {
        let mut rows = Rows::new();
        for insert in 0..self.inserts.len() {
            let (categories, statement) = &self.inserts[insert];
            if categories.contains(&shape.category) {
                let names =
                    (1..=statement.parameter_count()).filter_map(|place| statement.parameter_name(place));
                let names: Vec<String> = names.map(str::to_owned).collect();
                let cells = names.iter().map(|name| self.cell(name, process, shape));
                let cells = cells.collect::<rusqlite::Result<_>>()?;
                rows.push((insert, cells));
            }
        }
        Ok(rows)
    }

    /// What a parameter of that name stands for.
    fn cell(&mut self, name: &str, process: Process, shape: &Shape) -> rusqlite::Result<Cell> {
        let global_pid = MACHINE | process.pid << 24;
        let tid = shape.tid.as_i64().unwrap_or(0);
        let host = i64::from(shape.name.contains("Pinned"));
        // Host to device and back; 0 and 1 are pageable and pinned memory of the host, 2 is the device's.
        let [copy_kind, from, to] = if shape.name.contains("HtoD") { [1, host, 2] } else { [2, 2, host] };
        let number = |key: &str| arg(shape, key).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        let graph = number("graph id");
        let value = match name {
            ":start" => return Ok(Cell::Start),
            ":end" => return Ok(Cell::End),
            ":correlation" => return Ok(Cell::Correlation),
            ":number" => return Ok(Cell::Number),
            ":text" => return Ok(Cell::Text),
            ":textId" => return Ok(Cell::TextId),
            ":device" => process.device,
            ":rank" => process.rank.into(),
            ":pid" => process.pid,
            ":globalPid" => global_pid,
            ":tid" | ":stream" => tid,
            ":globalTid" => global_pid | tid,
            ":object" => return Ok(Cell::Same(object(process.pid, tid).into())),
            ":gpu" => self.text_id("NVIDIA H100 80GB HBM3")?,
            ":name" => self.text_id(&versioned(&shape.name))?,
            ":shortName" => self.text_id(short_name(&shape.name))?,
            ":isDriver" => i64::from(shape.category == "cuda_driver"),
            ":callback" => number("cbid"),
            ":bytes" => number("bytes"),
            ":copyKind" => copy_kind,
            ":from" => from,
            ":to" => to,
            ":registers" => number("registers per thread"),
            ":sharedMemory" => number("shared memory"),
            ":graph" | ":graphNode" if graph == 0 => return Ok(Cell::Same(Value::Null)),
            ":graph" => graph,
            ":graphNode" => number("graph node id"),
            _ => launch_size(shape, name),
        };
        Ok(Cell::Same(value.into()))
    }

    /// Writes the rows of an event.
    pub(super) fn write(&mut self, rows: &Rows, shape: &Shape, record: &Record) -> rusqlite::Result<()> {
        let is_numbered = |(_, cells): &(_, Vec<Cell>)| cells.iter().any(|cell| matches!(cell, Cell::Number));
        self.number += i64::from(rows.iter().any(is_numbered));
        for (insert, cells) in rows {
            for (place, cell) in (1..).zip(cells) {
                let value = match cell {
                    Cell::Start => record.start_ns.into(),
                    Cell::End => (record.start_ns + record.dur_ns).into(),
                    Cell::Correlation => record.values[1].into(),
                    Cell::Number => self.number.into(),
                    Cell::Text => range_text(shape, record).into(),
                    Cell::TextId => self.text_id(&range_text(shape, record))?.into(),
                    Cell::Same(value) => value.clone(),
                };
                self.inserts[*insert].1.raw_bind_parameter(place, value)?;
            }
            self.inserts[*insert].1.raw_execute()?;
        }
        Ok(())
    }

    /// The number of a text in the table of texts.
    fn text_id(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(&id) = self.texts.get(text) {
            return Ok(id);
        }
        let id = self.insert_text.insert([text])?;
        if self.texts.len() < MOST_STRINGS {
            self.texts.insert(text.to_owned(), id);
        }
        Ok(id)
    }
}

fn arg<'s>(shape: &'s Shape, wanted: &str) -> Option<&'s str> {
    shape.args.iter().find_map(|(key, value)| match value {
        Arg::Json(text) if *key == wanted => Some(text.as_str()),
        _ => None,
    })
}

/// A size of a launch, such as `:gridX`.
fn launch_size(shape: &Shape, name: &str) -> i64 {
    let (key, axis) = name.trim_start_matches(':').split_at(name.len() - 2);
    let sizes: Vec<i64> =
        arg(shape, key).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    ["X", "Y", "Z"].iter().zip(sizes).find_map(|(known, size)| (*known == axis).then_some(size)).unwrap_or(1)
}

/// The text of a range as `emit_nvtx` writes it.
fn range_text(shape: &Shape, record: &Record) -> String {
    let [id, sequence, number] = record.values;
    let mut text = shape.name.clone();
    // Writing to a string cannot fail.
    if shape.name_number.is_some() {
        let _ = write!(text, "{number}");
    }
    if shape.args.iter().any(|(key, _)| *key == "Sequence number") {
        let _ = write!(text, ", seq = {sequence}");
    }
    if shape.category == "cpu_op" {
        let _ = write!(text, ", op_id = {id}");
    }
    if let Some(sizes) = arg(shape, "Input Dims") {
        let _ = write!(text, ", sizes = {sizes}");
    }
    text
}

/// The name of a function of the runtime with the version of its interface, as nsys writes it.
fn versioned(name: &str) -> String {
    let version = match name {
        "cudaLaunchKernel" => 7000,
        "cudaLaunchKernelExC" => 11060,
        "cudaGraphLaunch" | "cudaStreamIsCapturing" => 10000,
        "cudaFuncSetAttribute" => 9000,
        _ if name.starts_with("cuda") => 3020,
        _ => return name.to_owned(),
    };
    format!("{name}_v{version}")
}

/// The name of a kernel without namespaces, template arguments and parameters.
fn short_name(name: &str) -> &str {
    let end = name.find(['<', '(']).unwrap_or(name.len());
    let bare = name.get(..end).unwrap_or(name).trim_start_matches("void ");
    bare.rsplit("::").next().unwrap_or(bare)
}

/// A thread as markers of nvprof refer to it: 32 bits each of process and thread, and padding.
fn object(pid: i64, tid: i64) -> Vec<u8> {
    [(pid as u32).to_le_bytes(), (tid as u32).to_le_bytes(), [0; 4]].concat()
}
