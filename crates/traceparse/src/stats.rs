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
    ByteOrderMark, "byte_order_mark", Repaired, "The file begins with a byte-order mark. It was skipped.";
    BareArray, "bare_array", Info, "The file is an array of events without metadata around it.";
    NoEvents, "no_events", Info, "The file contains no events.";
    ConcatenatedDocuments, "concatenated_documents", Repaired, "The file contains several JSON documents. The events of all documents were read.";
    RepeatedEvents, "repeated_trace_events", Info, "`traceEvents` occurs more than once. The events of all lists were read.";
    BadMetadata, "bad_metadata", Repaired, "A value of the file's metadata is not valid JSON. It was kept as text.";
    UnreadableMetadata, "unreadable_metadata", Lost, "A part of the file's metadata could not be read.";
    TrailingGarbage, "trailing_garbage", Repaired, "Bytes after the end of the document were ignored.";
    Truncated, "truncated", Lost, "The file ends in the middle. Everything before the cut was read.";
    TruncatedCompression, "truncated_compression", Lost, "The compressed stream ends in the middle or is damaged. Everything before that was read.";
    BrokenEvent, "broken_event", Lost, "An event is not valid JSON and could not be repaired. It was dropped.";
    RepairedEvent, "repaired_event", Repaired, "An event is not valid JSON. It was read by repairing quotes or escapes.";
    MissingComma, "missing_comma", Repaired, "The comma between two events is missing. Both were read.";
    StrayBracket, "stray_bracket", Repaired, "The list of events ends too early. The events after its end were read.";
    NotAnObject, "event_is_no_object", Lost, "An element of `traceEvents` is not an object. It was dropped.";
    OversizedEvent, "oversized_event", Lost, "An event is larger than the limit for one event. It was dropped.";
    MissingTime, "missing_time", Lost, "An event has no usable timestamp. It was dropped.";
    MissingPhase, "missing_phase", Repaired, "An event has no `ph`. It was read as a slice.";
    MissingName, "missing_name", Repaired, "An event has no name. Its name is null.";
    MissingDuration, "missing_duration", Repaired, "A slice has no usable duration. Its duration is null.";
    NegativeDuration, "negative_duration", Repaired, "A slice ends before it starts. Its duration is null.";
    UntimedWork, "untimed_work", Repaired, "GPU operations without a usable timestamp (missing, zero, or far outside the recording). They are in `untimed_gpu_ops` and excluded from all figures.";
    UntimedOperators, "untimed_operators", Repaired, "Operators without a timestamp (recorded at 0 with duration 0). They are in `untimed_events` and excluded from all figures.";
    UntimedAnnotations, "untimed_annotations", Repaired, "Annotations without a timestamp (recorded at 0 with duration 0). They are in `untimed_events` and excluded from all figures.";
    UntimedCalls, "untimed_calls", Repaired, "API calls without a timestamp (recorded at 0 with duration 0). They are in `untimed_events` and excluded from all figures.";
    UntimedFrames, "untimed_frames", Repaired, "Python frames without a timestamp (recorded at 0 with duration 0). They are in `untimed_events` and excluded from all figures.";
    UntimedMemory, "untimed_memory", Repaired, "Memory events without a timestamp (recorded at 0). They are in `untimed_events` and excluded from all figures.";
    ImpossibleDuration, "impossible_duration", Repaired, "GPU operations with an impossible duration: they contain a later operation of the same stream, or are longer than the capture. They were cut at the start of the next operation or the end of the capture. `recorded_dur_ns` has the recorded duration.";
    NumberAsText, "number_as_text", Repaired, "A number is written as text. It was read as a number.";
    BadNumber, "bad_number", Repaired, "A number cannot be read or is out of range. It is null.";
    BadValue, "bad_value", Repaired, "An argument is not valid JSON. It was kept as text.";
    BareNonFinite, "bare_non_finite", Repaired, "A bare word such as nan or inf is not JSON. It was read as a number.";
    BadEscape, "bad_escape", Repaired, "A text has an invalid escape, so its writer does not escape backslashes. They were read literally.";
    ControlCharacter, "control_character", Repaired, "A text has a raw control character. It was kept.";
    BadUtf8, "bad_utf8", Repaired, "A text is not valid UTF-8. The invalid bytes were replaced.";
    TrailingComma, "trailing_comma", Repaired, "A list or object has a superfluous comma. It was ignored.";
    DuplicateKey, "duplicate_key", Repaired, "An event has a key twice. The last value counts.";
    DeepNesting, "deep_nesting", Repaired, "An argument is nested deeper than the limit. It was dropped from the event.";
    UnpaddedFraction, "unpadded_fraction", Repaired, "Fractions of timestamps are not padded with zeros (a known profiler bug). They were read as nanoseconds.";
    LegacyExternalId, "legacy_external_id", Info, "External ids repeat the correlation ids (a profiler bug of 2022 to 2024). Operators were matched by time instead.";
    UnconfirmedExternalId, "unconfirmed_external_id", Info, "An external id equals the event's own correlation id, and no operator with that id encloses it. It was not used.";
    DuplicateExternalId, "duplicate_external_id", Info, "Several operators share an external id. The last one that starts before the event was used.";
    DuplicateCorrelation, "duplicate_correlation", Info, "Several launches share a correlation id. The last one that starts before the GPU operation was used.";
    LaunchByExternalId, "launch_by_external_id", Info, "GPU operations without a usable correlation id. Their launches were matched by external id, kind and order.";
    LaunchOutsideTrace, "launch_outside_trace", Info, "GPU operations whose launch is not in the trace, for example at the start of a recording.";
    LaunchWithoutGpuWork, "launch_without_gpu_work", Info, "Kernel launches whose GPU operation is not in the trace, for example at its end or during a graph capture.";
    NoOpForLaunch, "no_op_for_launch", Info, "Launches of GPU operations outside any operator.";
    PartialOverlap, "partial_overlap", Info, "Two operators of one thread overlap, but neither encloses the other. Both are kept.";
    ParentCycle, "python_parent_cycle", Repaired, "Python frames name each other as parents. The link was cut.";
    NotCaptured, "not_captured", Info, "The recording was configured without this data. The table is missing or empty.";
    CapturedEmpty, "captured_empty", Info, "This data was captured, but no such event occurred. The table is missing or empty.";
    TableAbsent, "table_absent", Info, "The table is missing or empty. The file does not record whether this was not captured or did not occur.";
    NewerColumn, "newer_column", Info, "The column was added in a later version of nsys. Its values are null.";
    MissingColumn, "missing_column", Info, "The table lacks a column that this version of nsys should write. Its values are null.";
    UnreadableTable, "unreadable_table", Lost, "The table lacks a required column or cannot be read. Its rows are missing.";
    RenamedTable, "renamed_table", Lost, "The table is missing, and another table whose name begins with the same word is not read. The rows are missing.";
    VersionedTable, "versioned_table", Info, "The name of a table has a version suffix, such as `NVTX_EVENTS_V2`, and the table without the suffix has no rows. It was read under the plain name.";
    UnreadTable, "unread_table", Info, "Tables that contain rows but are not read. They are listed in the properties.";
    NewerSchema, "newer_schema", Info, "The schema of the export is newer than any schema that this reader was tested with.";
    DamagedPages, "damaged_pages", Lost, "Pages of the database are damaged. Rows are missing from the given one to the next readable one.";
    MissingRows, "missing_rows", Lost, "Upper bound of the rows lost to damaged pages, by row number. Rows lost after the last readable one are not included.";
    TruncatedDatabase, "truncated_database", Lost, "The database is shorter than its header says. Pages at its end are missing.";
    UnfinishedWrites, "unfinished_writes", Lost, "A rollback journal exists next to the database, so the last write did not finish. The database may be inconsistent.";
    WriteAheadLog, "write_ahead_log", Info, "A write-ahead log exists next to the database. Its changes were read as well.";
    WrongType, "wrong_type", Repaired, "A value does not have the type of its column. It was converted where that is exact, and is null otherwise.";
    UnexpectedNull, "unexpected_null", Repaired, "A required value is null. The row was kept.";
    ImpossibleMetric, "impossible_metric", Repaired, "A sampled GPU metric is negative, or a percentage is above 100 %, for example because a counter wrapped. It is null.";
    UnknownMetric, "unknown_metric", Info, "The database does not name a GPU metric. Its number is used as the name.";
    OtherGenericEvent, "other_generic_event", Info, "A generic event that is not a sample of GPU metrics. It was skipped.";
    UnknownString, "unknown_string", Repaired, "A row refers to a text that the database does not contain. The text is null.";
    OpenRange, "open_range", Repaired, "A range has no end. It was extended to the end of the session.";
    RangeWithoutStart, "range_without_start", Lost, "The end of a range whose start is not in the trace. It was dropped.";
    PayloadsLeftOut, "payloads_left_out", Info, "NCCL described its calls, but the export omitted the descriptions. Export again with `nsys export --type sqlite --include-blobs=true` to see sizes, communicators and peers.";
    UnknownPayload, "unknown_payload", Info, "The payload of a range matches no schema of the database, or several. Its values are unknown.";
    BadPayload, "bad_payload", Repaired, "The payload of a range is shorter than its schema. Its values are unknown.";
    AmbiguousDevice, "ambiguous_device", Info, "Several processes use the same device number, and the file does not record whether it is the same GPU. Distinguish them by `pid`.";
    RecorderWarning, "recorder_warning", Info, "Warnings and errors that the profiler recorded about itself. They are in the table `instants`.";
    ReplayMatched, "replay_matched", Info, "GPU operations that a graph launch replayed and that were matched to a node of a captured graph.";
    ReplayUnknown, "replay_unknown", Info, "GPU operations that a graph launch replayed and that match no known capture. Pass the trace that contains the capture with `capture=`, or with `--capture` on the command line.";
    ReplayAmbiguous, "replay_ambiguous", Info, "GPU operations that a graph launch replayed and that match several captured nodes. Their node is null.";
    GraphWithoutNodes, "graph_without_nodes", Info, "Executions of whole CUDA graphs. The operations inside them were not recorded. Record with `nsys profile --cuda-graph-trace=node` to see each node as an operation.";
    CaptureCutOff, "capture_cut_off", Info, "The end of a graph capture is not in the trace. Only the beginning of the graph is known.";
    CaptureUnreadable, "capture_unreadable", Info, "A file next to the trace, in `capture_traces`, cannot be read as a trace.";
    UnrankedEvent, "unranked_event", Info, "An event without a known rank, in a file that contains several ranks. It was assigned to the first rank.";
    Filtered, "filtered", Info, "Events that the caller's filters excluded.";
    OverlappingSteps, "overlapping_steps", Info, "Steps overlap. Each step begins where the previous one ends.";
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
