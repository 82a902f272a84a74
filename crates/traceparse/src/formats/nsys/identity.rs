//! Who did it: processes, threads and GPUs.

/// Bits of a thread id in a global id.
const TID_BITS: u32 = 24;
const TID_MASK: u64 = (1 << TID_BITS) - 1;
/// Bits of hardware, virtual machine and process: a global process id without its empty low end.
const VM_SHIFT: u32 = 48;

/// A global id: 8 bits of hardware, 8 of virtual machine, 24 of process, 24 of thread.
///
/// SQLite stores it as a signed number; its bits are what counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GlobalId(pub(super) i64);

impl GlobalId {
    fn bits(self) -> u64 {
        self.0.cast_unsigned()
    }

    /// Hardware and virtual machine.
    pub(super) fn machine(self) -> u64 {
        self.bits() >> VM_SHIFT
    }

    fn process_bits(self) -> u64 {
        self.bits() >> TID_BITS
    }

    /// The thread's id in its process.
    pub(super) fn tid(self) -> i64 {
        (self.bits() & TID_MASK).cast_signed()
    }
}

/// Names processes.
///
/// Process ids repeat across machines: on the machine of the session a process has its own id, on
/// another one the 40 bits of machine and process, which no process id reaches.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Processes {
    /// The machine of the session; null where no event tells one.
    pub(super) machine: Option<u64>,
}

impl Processes {
    /// The id of the process of a global process or thread id.
    #[inline]
    pub(super) fn pid(self, id: GlobalId) -> i64 {
        let process = id.process_bits();
        if self.machine.is_none_or(|machine| machine == id.machine()) {
            (process & TID_MASK).cast_signed()
        } else {
            process.cast_signed()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GlobalId, Processes};

    #[test]
    fn ids_are_taken_apart_by_their_bits() {
        let id = GlobalId(0x1_0e6f_290e_6f29);
        let session = Processes { machine: Some(1) };
        assert_eq!((session.pid(id), id.tid(), id.machine()), (945_961, 945_961, 1));
        let elsewhere = Processes { machine: Some(2) };
        assert_eq!(elsewhere.pid(id), (1 << 24) | 945_961);
        let high = GlobalId(-144_115_188_075_855_872);
        assert_eq!((high.machine(), high.tid()), (0xfe00, 0));
    }
}
