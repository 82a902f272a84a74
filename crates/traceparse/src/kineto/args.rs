//! The arguments of an event: known keys go to numbered slots, all others are kept aside.

use std::collections::HashMap;

use super::event::FIELD_COUNT;
use super::scan::{Cursor, Key, Kind, Raw, Stop};
use super::text::decode_string;

/// Declares the known argument keys, with the spellings of all recorder versions.
macro_rules! args {
    ($( $arg:ident = $($key:literal)|+ ; )*) => {
        /// A known argument.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Arg { $( $arg, )* }

        /// Every spelling, with its argument.
        static SPELLINGS: [(Key, Arg); SPELLING_COUNT] =
            [$( $( (Key::new(concat!($key, "\"").as_bytes()), Arg::$arg), )+ )*];
        const SPELLING_COUNT: usize = [$( $( $key, )+ )*].len();
        const COUNT: usize = [$( Arg::$arg ),*].len();
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

/// Maps keys to arguments, guessing from the key that came before.
///
/// The events of one kind carry the same keys in the same order, so the guess is nearly always
/// right and costs one comparison.
#[derive(Debug)]
pub(crate) struct KeyMap {
    known: HashMap<&'static [u8], (Arg, u8)>,
    /// Spelling that last followed each spelling; the last entry stands for the first key.
    next: [u8; SPELLING_COUNT + 1],
    /// The same for the keys of the event itself.
    pub(super) next_field: [u8; FIELD_COUNT + 1],
}

impl Default for KeyMap {
    fn default() -> Self {
        let known =
            SPELLINGS.iter().enumerate().map(|(i, (key, arg))| (key.text(), (*arg, i as u8))).collect();
        Self { known, next: [0; SPELLING_COUNT + 1], next_field: [0; FIELD_COUNT + 1] }
    }
}

const START: u8 = SPELLING_COUNT as u8;

impl KeyMap {
    /// The known key after the quote at the cursor, if the guess from `previous` is right;
    /// the cursor then stands behind the closing quote.
    #[inline]
    fn guess(&self, cursor: &mut Cursor<'_>, previous: u8) -> Option<(Arg, u8)> {
        let spelling = self.next[usize::from(previous)];
        let (key, arg) = &SPELLINGS[usize::from(spelling)];
        cursor.skip_key(key).then_some((*arg, spelling))
    }

    fn look_up(&mut self, key: &[u8], previous: u8) -> Option<(Arg, u8)> {
        let found = self.known.get(key).copied()?;
        self.next[usize::from(previous)] = found.1;
        Some(found)
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
                visit(Raw { kind: Kind::Text, bytes: key.text() }, self.slots[*arg as usize]);
            }
        }
    }

    /// Parses the object at the cursor.
    #[inline]
    pub(crate) fn parse(&mut self, cursor: &mut Cursor<'a>, keys: &mut KeyMap) -> Result<(), Stop> {
        cursor.at += 1;
        let mut previous = START;
        let mut after_comma = false;
        loop {
            match cursor.next_token()? {
                b'"' => {}
                b'}' => {
                    self.has_trailing_comma |= after_comma;
                    cursor.at += 1;
                    return Ok(());
                }
                _ => return Err(Stop::Syntax),
            }
            let (key, known) = match keys.guess(cursor, previous) {
                Some(found) => (Raw::default(), Some(found)),
                None => {
                    let key = cursor.string()?;
                    let known = match key.kind {
                        Kind::Text => keys.look_up(key.bytes, previous),
                        _ => keys.look_up(decode_string(key.bytes).0.as_bytes(), previous),
                    };
                    (key, known)
                }
            };
            if cursor.next_token()? != b':' {
                return Err(Stop::Syntax);
            }
            cursor.at += 1;
            let value = cursor.value()?;
            match known {
                Some((arg, spelling)) => {
                    self.has_duplicate |= self.present & bit(arg) != 0;
                    self.present |= bit(arg);
                    self.slots[arg as usize] = value;
                    previous = spelling;
                }
                None => self.has_duplicate |= insert(&mut self.others, key, value),
            }
            after_comma = match cursor.next_token()? {
                b',' => {
                    cursor.at += 1;
                    true
                }
                b'}' => false,
                _ => return Err(Stop::Syntax),
            };
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

    #[test]
    fn every_argument_has_a_bit() {
        const { assert!(COUNT <= 64) };
    }
}
