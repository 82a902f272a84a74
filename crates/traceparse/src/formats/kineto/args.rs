//! The arguments of an event: known keys go to numbered slots, all others are kept aside.

use std::collections::HashMap;

use super::members::{KeyPredictor, Member, OTHER_ROWS};
use super::scan::{Cursor, Kind, Raw, Stop};

/// Declares the known argument keys, with the spellings of all recorder versions.
macro_rules! args {
    ($( $arg:ident = $($key:literal)|+ ; )*) => {
        /// A known argument.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Arg { $( $arg, )* }

        /// Every spelling, with its argument.
        static SPELLINGS: [(&str, Arg); SPELLING_COUNT] = [$( $( ($key, Arg::$arg), )+ )*];
        const SPELLING_COUNT: usize = [$( $( $key, )+ )*].len();
        const COUNT: usize = [$( Arg::$arg ),*].len();
        // Each has a bit: see `bit`.
        const _: () = assert!(COUNT <= 64);
    };
}

args! {
    ExternalId = "External id" | "external id";
    Correlation = "correlation";
    EventIndex = "Ev Idx" | "Profiler Event Index";
    RecordFunctionId = "Record function id";
    Sequence = "Sequence number";
    ForwardThread = "Fwd thread id";
    InputDims = "Input Dims" | "Input dims";
    InputTypes = "Input type";
    InputStrides = "Input Strides";
    ConcreteInputs = "Concrete Inputs";
    CallStack = "Call stack";
    ModuleHierarchy = "Module Hierarchy";
    Finished = "finished";
    PythonId = "Python id";
    PythonParentId = "Python parent id";
    PythonModuleId = "Python module id";
    Address = "Addr";
    MemoryBytes = "Bytes";
    TotalAllocated = "Total Allocated";
    TotalReserved = "Total Reserved";
    DeviceType = "Device Type";
    DeviceId = "Device Id";
    CudaCallback = "cbid";
    HipCallback = "cid";
    MangledName = "mangled name";
    Kernel = "kernel";
    Device = "device";
    Context = "context";
    Stream = "stream";
    Queued = "queued";
    Registers = "registers per thread";
    SharedMemory = "shared memory";
    Grid = "grid";
    Block = "block";
    BlocksPerSm = "blocks per SM";
    WarpsPerSm = "warps per SM";
    Occupancy = "est. achieved occupancy %";
    GraphId = "graph id";
    GraphNodeId = "graph node id";
    Priority = "priority";
    Channel = "channel";
    Bytes = "bytes";
    Bandwidth = "memory bandwidth (GB/s)";
    SyncKind = "cuda_sync_kind";
    WaitStream = "wait_on_stream";
    WaitCorrelation = "wait_on_cuda_event_record_corr_id";
    WaitEvent = "wait_on_cuda_event_id";
    EventId = "event_id";
    CollectiveName = "Collective name";
    DType = "dtype";
    InElements = "In msg nelems";
    OutElements = "Out msg nelems";
    GroupSize = "Group size";
    InSplit = "In split size";
    OutSplit = "Out split size";
    GroupName = "Process Group Name";
    GroupDescription = "Process Group Description";
    GroupRanks = "Process Group Ranks";
    Rank = "Rank";
    SourceRank = "Src Rank";
    DestinationRank = "Dst Rank";
    CollectiveSequence = "Seq";
    CommsId = "Comms Id";
    IsAsync = "Is asynchronized op";
}

/// The set bit of an argument.
pub(crate) const fn bit(arg: Arg) -> u64 {
    1 << arg as u8
}

/// The keys of an event, in the order of the fields of `RawEvent`.
pub(super) const FIELDS: [&[u8]; 10] =
    [b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"id", b"s", b"args"];
/// What was learned about the fields of events.
pub(super) type FieldPredictor = KeyPredictor<{ FIELDS.len() + OTHER_ROWS }>;

/// What is known about keys: those of arguments, and what was learned about the way they are written.
#[derive(Debug)]
pub(crate) struct KeyMap {
    known: HashMap<&'static [u8], usize>,
    args: ArgPredictor,
    pub(super) fields: FieldPredictor,
}

type ArgPredictor = KeyPredictor<{ SPELLING_COUNT + OTHER_ROWS }>;

impl Default for KeyMap {
    fn default() -> Self {
        let known = SPELLINGS.iter().enumerate().map(|(i, (key, _))| (key.as_bytes(), i)).collect();
        Self { known, args: KeyPredictor::default(), fields: KeyPredictor::default() }
    }
}

/// The arguments of one event.
#[derive(Debug)]
pub(crate) struct Args<'a> {
    present: u64,
    slots: [Raw<'a>; COUNT],
    /// Unknown arguments, in order.
    pub(crate) others: Vec<(Raw<'a>, Raw<'a>)>,
    /// Whether a key occurred twice.
    pub(crate) has_duplicate: bool,
    /// Whether a comma stands before the closing brace.
    pub(crate) has_trailing_comma: bool,
}

impl Default for Args<'_> {
    fn default() -> Self {
        Self {
            present: 0,
            slots: [Raw::default(); COUNT],
            others: Vec::new(),
            has_duplicate: false,
            has_trailing_comma: false,
        }
    }
}

impl<'a> Args<'a> {
    pub(crate) fn clear(&mut self) {
        self.present = 0;
        self.others.clear();
        self.has_duplicate = false;
        self.has_trailing_comma = false;
    }

    /// Which of the arguments in `mask` are left.
    #[inline]
    pub(crate) fn left(&self, mask: u64) -> u64 {
        self.present & mask
    }

    /// The value of `arg`, which then no longer counts as left.
    #[inline]
    pub(crate) fn take(&mut self, arg: Arg) -> Raw<'a> {
        if self.present & bit(arg) == 0 {
            return Raw::default();
        }
        self.present &= !bit(arg);
        self.slots[arg as usize]
    }

    /// Counts `arg`, which was taken, as left again.
    pub(crate) fn put_back(&mut self, arg: Arg) {
        self.present |= bit(arg);
    }

    /// Whether no argument is left, known or unknown.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.present == 0 && self.others.is_empty()
    }

    /// Takes every known argument that is left; `visit` gets its key and value.
    pub(crate) fn drain(&mut self, mut visit: impl FnMut(Raw<'a>, Raw<'a>)) {
        let mut left = std::mem::take(&mut self.present);
        while left != 0 {
            let slot = left.trailing_zeros();
            left &= left - 1;
            if let Some((key, arg)) = SPELLINGS.iter().find(|(_, arg)| *arg as u32 == slot) {
                visit(Raw { kind: Kind::Text, bytes: key.as_bytes() }, self.slots[*arg as usize]);
            }
        }
    }

    /// Parses the object at the cursor.
    #[inline]
    pub(crate) fn parse(&mut self, cursor: &mut Cursor<'a>, keys: &mut KeyMap) -> Result<(), Stop> {
        let KeyMap { known, args, .. } = keys;
        let mut previous = ArgPredictor::START;
        loop {
            let trailing = &mut self.has_trailing_comma;
            let number_of = |key: &[u8]| known.get(key).copied();
            match args.next(cursor, previous, trailing, number_of)? {
                Member::Known(spelling) => {
                    previous = spelling;
                    let arg = SPELLINGS[spelling].1;
                    self.has_duplicate |= self.present & bit(arg) != 0;
                    self.present |= bit(arg);
                    self.slots[arg as usize] = cursor.value()?;
                }
                Member::Other(key) => {
                    previous = ArgPredictor::OTHER;
                    let value = cursor.value()?;
                    self.has_duplicate |= insert(&mut self.others, key, value);
                }
                Member::End => return Ok(()),
            }
        }
    }
}

/// Puts `value` into `members` under `key`; true if the key was there and has a new value now.
///
/// An event can have any number of keys, so only the first are compared.
pub(crate) fn insert<'a>(members: &mut Vec<(Raw<'a>, Raw<'a>)>, key: Raw<'a>, value: Raw<'a>) -> bool {
    let twin = members.iter_mut().take(64).find(|(known, _)| known.bytes == key.bytes);
    match twin {
        Some(twin) => {
            twin.1 = value;
            true
        }
        None => {
            members.push((key, value));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_keys_fill_slots_and_others_are_kept() {
        let text = br#"{"External id": 3, "mine": [1], "external id": 4, "mine": 2, "stream": 7,}"#;
        let mut args = Args::default();
        let mut cursor = Cursor::new(text, 0);
        args.parse(&mut cursor, &mut KeyMap::default()).unwrap();
        assert_eq!(cursor.at, text.len());
        assert_eq!(args.take(Arg::ExternalId).bytes, b"4");
        assert_eq!(args.others.len(), 1);
        assert_eq!(args.others[0].1.bytes, b"2");
        assert!(args.has_duplicate && args.has_trailing_comma);
        let mut left = Vec::new();
        args.drain(|key, value| left.push((key.bytes, value.bytes)));
        assert_eq!(left, [(b"stream".as_slice(), b"7".as_slice())]);
        args.others.clear();
        assert!(args.is_empty());
    }
}
