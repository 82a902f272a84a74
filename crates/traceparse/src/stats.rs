//! Named counters of everything that was repaired, dropped or doubted.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::schema::{DiagnosticRow, Diagnostics, SymbolTable};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; every value is as recorded.
    Info,
    /// A value was replaced or made null; the event was kept.
    Repaired,
    /// An event or a part of the file is missing from the tables.
    Lost,
}

impl Severity {
    /// The name users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Repaired => "repaired",
            Self::Lost => "lost",
        }
    }
}

/// Declares the findings, each with its stable name, severity and explanation.
macro_rules! codes {
    ($( $code:ident, $name:literal, $severity:ident, $message:literal; )*) => {
        /// A kind of finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $( #[doc = $message] $code, )*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$( Self::$code, )*];

            /// Stable name.
            pub fn name(self) -> &'static str {
                match self { $( Self::$code => $name, )* }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $( Self::$code => Severity::$severity, )* }
            }

            /// What it is and what was done.
            pub fn message(self) -> &'static str {
                match self { $( Self::$code => $message, )* }
            }
        }
    };
}

codes! {
    ByteOrderMark, "byte_order_mark", Repaired, "The file begins with a byte-order mark; it was skipped.";
    BareArray, "bare_array", Info, "The file is an array of events without metadata around it.";
    NoEvents, "no_events", Info, "The file has no events.";
    ConcatenatedDocuments, "concatenated_documents", Repaired, "The file holds several JSON documents; the events of all were read.";
    RepeatedEvents, "repeated_trace_events", Info, "`traceEvents` occurs more than once; the events of all were read.";
    BadMetadata, "bad_metadata", Repaired, "A value of the file's metadata is no valid JSON; it is kept as text.";
    UnreadableMetadata, "unreadable_metadata", Lost, "A part of the file's metadata could not be read.";
    TrailingGarbage, "trailing_garbage", Repaired, "Bytes after the end of the document were ignored.";
    Truncated, "truncated", Lost, "The file ends in the middle; everything before the cut was read.";
    TruncatedCompression, "truncated_compression", Lost, "The compressed stream ends in the middle or is damaged; everything before that was read.";
    BrokenEvent, "broken_event", Lost, "An event is no valid JSON and could not be repaired; it was dropped.";
    RepairedEvent, "repaired_event", Repaired, "An event is no valid JSON; it was read by repairing quotes or escapes.";
    MissingComma, "missing_comma", Repaired, "Two events have no comma between them; both were read.";
    StrayBracket, "stray_bracket", Repaired, "The list of events ends too early; the events behind its end were read.";
    NotAnObject, "event_is_no_object", Lost, "An element of `traceEvents` is no object; it was dropped.";
    OversizedEvent, "oversized_event", Lost, "An event is larger than the limit for one event; it was dropped.";
    MissingTime, "missing_time", Lost, "An event has no usable time stamp; it was dropped.";
    MissingPhase, "missing_phase", Repaired, "An event has no `ph`; it was read as a slice.";
    MissingName, "missing_name", Repaired, "An event has no name; its name is null.";
    MissingDuration, "missing_duration", Repaired, "A slice has no usable duration; its duration is null.";
    NegativeDuration, "negative_duration", Repaired, "A slice ends before it starts; its duration is null.";
    UntimedWork, "untimed_work", Repaired, "GPU work without a usable time: without a start, at 0 without a length, or far outside of the recording; it is in `untimed_gpu_ops`, and no figure has it.";
    UntimedOperators, "untimed_operators", Repaired, "Operators without a timestamp: at 0 without a duration. They are in `untimed_events` and excluded from all figures.";
    UntimedAnnotations, "untimed_annotations", Repaired, "Annotations without a timestamp: at 0 without a duration. They are in `untimed_events` and excluded from all figures.";
    UntimedCalls, "untimed_calls", Repaired, "Runtime and driver calls without a timestamp: at 0 without a duration. They are in `untimed_events` and excluded from all figures.";
    UntimedFrames, "untimed_frames", Repaired, "Python frames without a timestamp: at 0 without a duration. They are in `untimed_events` and excluded from all figures.";
    UntimedMemory, "untimed_memory", Repaired, "Memory events without a timestamp: recorded at 0. They are in `untimed_events` and excluded from all figures.";
    ImpossibleDuration, "impossible_duration", Repaired, "GPU work that contains a whole later one of its stream, or is longer than the capture, which cannot be: it ends where the next one begins, or with the capture, and `recorded_dur_ns` says how long it was recorded.";
    NumberAsText, "number_as_text", Repaired, "A number is written as text; it was read as a number.";
    BadNumber, "bad_number", Repaired, "A number cannot be read or is out of range; it is null.";
    BadValue, "bad_value", Repaired, "An argument is no valid JSON; it is kept as text.";
    BareNonFinite, "bare_non_finite", Repaired, "A bare word such as nan or inf is no JSON; it was read as such.";
    BadEscape, "bad_escape", Repaired, "A text has an invalid escape: who wrote it escapes nothing, and its backslashes stand for themselves.";
    ControlCharacter, "control_character", Repaired, "A text has a raw control character; it was kept.";
    BadUtf8, "bad_utf8", Repaired, "A text is no valid UTF-8; the bad bytes were replaced.";
    TrailingComma, "trailing_comma", Repaired, "A list or object ends with a comma, or has one too many; it was ignored.";
    DuplicateKey, "duplicate_key", Repaired, "An event has a key twice; the last value counts.";
    DeepNesting, "deep_nesting", Repaired, "An argument is nested deeper than the limit; it was dropped from the event.";
    UnpaddedFraction, "unpadded_fraction", Repaired, "Fractions of time stamps are not padded with zeros (a known recorder fault); they were read as ns.";
    LegacyExternalId, "legacy_external_id", Info, "External ids repeat the correlation ids (a recorder fault of 2022 to 2024); ops were found by time instead.";
    UnconfirmedExternalId, "unconfirmed_external_id", Info, "An external id equals the event's own correlation id and no op of that id encloses it; it was not used.";
    DuplicateExternalId, "duplicate_external_id", Info, "Several ops have one external id; the last that starts before the event counts.";
    DuplicateCorrelation, "duplicate_correlation", Info, "Several launches have one correlation id; the last that starts before the work counts.";
    LaunchByExternalId, "launch_by_external_id", Info, "GPU operations without a usable correlation id. Their launches were found by external id, kind and order.";
    LaunchOutsideTrace, "launch_outside_trace", Info, "GPU work whose launch is not in the trace, as at the start of a recording.";
    LaunchWithoutGpuWork, "launch_without_gpu_work", Info, "A kernel launch has no GPU work in the trace, as at its end or while a graph is captured.";
    NoOpForLaunch, "no_op_for_launch", Info, "A launch of GPU work lies in no operator.";
    PartialOverlap, "partial_overlap", Info, "Two ops of one thread overlap without one enclosing the other; both are kept.";
    ParentCycle, "python_parent_cycle", Repaired, "Python frames name each other as parents; the link was cut.";
    NotCaptured, "not_captured", Info, "The recording was set up without this: there is no such table, or it is empty.";
    CapturedEmpty, "captured_empty", Info, "This was captured, and nothing of it happened: the table is empty or left out.";
    TableAbsent, "table_absent", Info, "There is no such table, or it is empty: either it was not captured or nothing of it happened; the file does not say.";
    NewerColumn, "newer_column", Info, "The column came with a later version of nsys than the one that wrote the file; its values are null.";
    MissingColumn, "missing_column", Info, "The table lacks a column that this version of nsys should write; its values are null.";
    UnreadableTable, "unreadable_table", Lost, "The table lacks a column that is needed to read it, or cannot be read at all; its rows are missing.";
    RenamedTable, "renamed_table", Lost, "There is no such table, and one that begins with its name is not read: its rows are missing.";
    VersionedTable, "versioned_table", Info, "A table has a version behind its name, such as `NVTX_EVENTS_V2`, and none of the plain name has rows; it was read under that name.";
    UnreadTable, "unread_table", Info, "Tables that hold rows and are not read; they are listed in the properties.";
    NewerSchema, "newer_schema", Info, "The schema of the export is newer than those this reader was tested with.";
    DamagedPages, "damaged_pages", Lost, "Pages of the database are damaged; rows behind the given one are missing up to the next that could be read.";
    MissingRows, "missing_rows", Lost, "Rows behind damaged pages, as the numbers of rows count them; how many are behind the last that could be found is not known.";
    TruncatedDatabase, "truncated_database", Lost, "The database is shorter than it says: pages at its end are missing.";
    UnfinishedWrites, "unfinished_writes", Lost, "A journal lies beside the database: a write was broken off, and the database may be neither as before nor as after it.";
    WriteAheadLog, "write_ahead_log", Info, "A write-ahead log lies beside the database: what stands in it was read, too.";
    WrongType, "wrong_type", Repaired, "A value is not of its column's type; it was converted where that is exact, and is null otherwise.";
    UnexpectedNull, "unexpected_null", Repaired, "A value that every row has is null here; the row was kept.";
    ImpossibleMetric, "impossible_metric", Repaired, "A sampled GPU metric is below 0, or a share is above 100 %, as where a counter wrapped; it is null.";
    UnknownMetric, "unknown_metric", Info, "The database does not name a GPU metric; it is called by its number.";
    OtherGenericEvent, "other_generic_event", Info, "A generic event that is no sample of GPU metrics; it was left out.";
    UnknownString, "unknown_string", Repaired, "A text is referred to that the database does not hold; it is null.";
    OpenRange, "open_range", Repaired, "A range has no end; it lasts to the end of the session.";
    RangeWithoutStart, "range_without_start", Lost, "The end of a range whose start is not in the trace; it was dropped.";
    PayloadsLeftOut, "payloads_left_out", Info, "NCCL described its calls, and the export left the descriptions out: sizes, communicators and peers are known after `nsys export --type sqlite --include-blobs=true`.";
    UnknownPayload, "unknown_payload", Info, "A range has a payload that no schema of the database describes, or several do; its values are not known.";
    BadPayload, "bad_payload", Repaired, "The payload of a range is shorter than its schema; its values are not known.";
    AmbiguousDevice, "ambiguous_device", Info, "Several processes use a device number, and the file does not say whether it is one GPU: tell them apart by `pid`.";
    RecorderWarning, "recorder_warning", Info, "Warnings and errors of the recorder itself; they are in the table `instants`.";
    ReplayMatched, "replay_matched", Info, "GPU work that a graph launch replayed and whose node in a captured graph was found.";
    ReplayUnknown, "replay_unknown", Info, "GPU work that a graph launch replayed and that no known capture fits: name the trace in which the graph was captured with `capture=`, or `--capture` on the command line.";
    ReplayAmbiguous, "replay_ambiguous", Info, "GPU work that a graph launch replayed and that may be several captured nodes; its node is null.";
    GraphWithoutNodes, "graph_without_nodes", Info, "Executions of whole CUDA graphs: nothing can be known of the work inside; recorded with `nsys profile --cuda-graph-trace=node`, each node is work of its own.";
    CaptureCutOff, "capture_cut_off", Info, "The end of a graph's capture is not in the trace; what is known is its beginning.";
    CaptureUnreadable, "capture_unreadable", Info, "A file beside the trace, in `capture_traces`, cannot be read as a trace.";
    UnrankedEvent, "unranked_event", Info, "An event of no rank that is known, in a file of several; it is with the first rank's.";
    Filtered, "filtered", Info, "Events that the filters of the caller left out.";
    OverlappingSteps, "overlapping_steps", Info, "Steps overlap; each begins where the one before ends.";
}

/// How often a finding was met, and where first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finding {
    /// Number of times.
    pub count: u64,
    /// Byte offset of the first, in the uncompressed source.
    pub first_offset: Option<u64>,
    /// Table of the database that it is about.
    pub source: Option<&'static str>,
    /// Column of that table, if it is about one.
    pub column: Option<&'static str>,
    /// rowid of the first, in that table.
    pub first_rowid: Option<i64>,
}

impl Finding {
    /// Table of the database, or `table.column`, that it is about.
    pub fn subject(&self) -> Option<String> {
        let table = self.source?;
        Some(self.column.map_or_else(|| table.to_owned(), |column| format!("{table}.{column}")))
    }

    /// Where the first was met, in words; empty where that is not known.
    pub fn place(&self) -> String {
        match (self.subject(), self.first_rowid, self.first_offset) {
            (Some(table), Some(rowid), _) => format!("table {table}, rowid {rowid}"),
            (Some(subject), None, _) => subject,
            (None, _, Some(offset)) => format!("byte {offset}"),
            (None, _, None) => String::new(),
        }
    }
}

/// All findings of one reading, and the count of events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Elements of `traceEvents`, or rows of the database.
    pub seen: u64,
    /// Events that are in a table.
    pub kept: u64,
    /// Events that are in no table; always `seen - kept`.
    pub dropped: u64,
    /// By kind and, for databases, by what they are about.
    findings: BTreeMap<(Code, Option<&'static str>, Option<&'static str>), Finding>,
}

impl Stats {
    /// Counts one finding.
    pub fn note(&mut self, code: Code, offset: Option<u64>) {
        self.note_many(code, 1, offset);
    }

    /// Counts `count` findings of which the first is at `offset`.
    pub fn note_many(&mut self, code: Code, count: u64, offset: Option<u64>) {
        self.add(code, Finding { count, first_offset: offset, ..Finding::default() });
    }

    /// Counts one finding about `source`, a table of a database.
    pub fn note_in(&mut self, code: Code, source: &'static str, rowid: Option<i64>) {
        let finding = Finding { count: 1, source: Some(source), first_rowid: rowid, ..Finding::default() };
        self.add(code, finding);
    }

    /// Counts `count` rows of `source`, a table of a database.
    pub fn note_rows(&mut self, code: Code, count: u64, source: &'static str) {
        self.add(code, Finding { count, source: Some(source), ..Finding::default() });
    }

    /// Counts one finding about a column of `source`, a table of a database.
    pub fn note_column(&mut self, code: Code, source: &'static str, column: &'static str) {
        let finding = Finding { count: 1, source: Some(source), column: Some(column), ..Finding::default() };
        self.add(code, finding);
    }

    fn add(&mut self, code: Code, found: Finding) {
        if found.count == 0 {
            return;
        }
        let known =
            self.findings.entry((code, found.source, found.column)).or_insert(Finding { count: 0, ..found });
        known.count += found.count;
        known.first_offset = first(known.first_offset, found.first_offset);
        known.first_rowid = first(known.first_rowid, found.first_rowid);
    }

    /// Adds what another reader of the same source found.
    pub fn merge(&mut self, other: &Self) {
        self.seen += other.seen;
        self.kept += other.kept;
        self.dropped += other.dropped;
        for (&(code, ..), &finding) in &other.findings {
            self.add(code, finding);
        }
    }

    /// What was found, in order of [`Code`].
    pub fn findings(&self) -> impl Iterator<Item = (Code, Finding)> + '_ {
        self.findings.iter().map(|(&(code, ..), &finding)| (code, finding))
    }

    /// The loss that comes first in the source, if anything was lost; one of a file before those of its tables.
    pub fn first_loss(&self) -> Option<(Code, Finding)> {
        let lost = self.findings().filter(|(code, _)| code.severity() == Severity::Lost);
        lost.min_by_key(|(_, finding)| (finding.source.is_some(), finding.first_offset, finding.first_rowid))
    }

    /// The first row of a database of which something is not known that every row tells.
    fn first_unknown(&self) -> Option<(Code, Finding)> {
        const UNKNOWN: [Code; 5] = [
            Code::UntimedWork,
            Code::MissingDuration,
            Code::NegativeDuration,
            Code::UnexpectedNull,
            Code::ImpossibleMetric,
        ];
        let found =
            self.findings().filter(|(code, finding)| finding.source.is_some() && UNKNOWN.contains(code));
        found.min_by_key(|(_, finding)| finding.first_rowid)
    }

    /// An error if anything was lost, or is not known of a row of a database that should tell.
    pub(crate) fn refuse_loss(&self) -> Result<()> {
        let Some((code, finding)) = self.first_loss().or_else(|| self.first_unknown()) else { return Ok(()) };
        let place = finding.subject().map(|_| format!(" ({})", finding.place())).unwrap_or_default();
        let error = Error::new(ErrorKind::Strict, format!("{}{place}", code.message()));
        Err(match finding.first_offset {
            Some(at) => error.with_offset(at),
            None => error,
        })
    }

    /// The finding of one kind, of the first source that has it.
    pub fn get(&self, code: Code) -> Option<Finding> {
        self.findings().find(|(found, _)| *found == code).map(|(_, finding)| finding)
    }

    /// The findings as a table, worst first.
    pub fn to_table(&self, symbols: &mut SymbolTable) -> Diagnostics {
        let mut table = Diagnostics::default();
        let mut findings: Vec<_> = self.findings().collect();
        findings.sort_by_key(|(code, _)| (std::cmp::Reverse(code.severity()), *code));
        for (code, finding) in findings {
            table.push(DiagnosticRow {
                code: symbols.intern(code.name()),
                severity: symbols.intern(code.severity().name()),
                count: i64::try_from(finding.count).unwrap_or(i64::MAX),
                first_offset: finding.first_offset.and_then(|o| i64::try_from(o).ok()),
                source: finding.subject().map(|subject| symbols.intern(&subject)),
                first_rowid: finding.first_rowid,
                message: symbols.intern(code.message()),
            });
        }
        table
    }
}

/// The lesser of two places, where known.
fn first<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
