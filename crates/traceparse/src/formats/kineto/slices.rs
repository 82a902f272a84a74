//! Which table a slice (an event with a duration) belongs to, and its row there.

use super::args::{self, Arg};
use super::event::Class;
use super::rows::{Add, Head};
use crate::schema::*;

impl Add<'_, '_, '_, '_> {
    /// The class of a slice, whose name or arguments tell what its category leaves open.
    pub(super) fn class_of_slice(&self, class: Class) -> Class {
        let name = self.event.name.bytes;
        match class {
            // XPU metrics repeat the kernels they were measured on.
            Class::Kernel if name.starts_with(b"metrics: ") => Class::Span,
            // A wait for an event of another stream, or the record of one, occupies a stream but is no work.
            Class::MtiaDevice if matches!(name, b"event_wait" | b"event_record") => Class::Sync,
            Class::MtiaDevice if name.starts_with(b"dma") => Class::Memcpy,
            Class::MtiaDevice => Class::Kernel,
            Class::Hpu => self.class_on_hpu(),
            Class::Collective if self.has_stream() => Class::Kernel,
            Class::Collective => Class::Span,
            class => class,
        }
    }

    /// Work of an engine says which event of the hardware it was recorded by; a call does not.
    fn class_on_hpu(&self) -> Class {
        let recorded_by = self.event.args.others.iter().find(|(key, _)| key.bytes == b"HW event name");
        let is_copy = |event: &[u8]| event.windows(3).any(|part| part.eq_ignore_ascii_case(b"DMA"));
        match recorded_by.map(|(_, event)| is_copy(event.bytes)) {
            Some(true) => Class::Memcpy,
            Some(false) => Class::Kernel,
            None => Class::Launch,
        }
    }

    pub(super) fn slice(&mut self, class: Class, head: &Head) {
        let dur_ns = self.duration();
        match class {
            Class::Op => self.op(head, dur_ns),
            Class::Launch => self.launch(head, dur_ns),
            Class::Kernel => self.gpu_op(self.builder.fixed.kernel, head, dur_ns),
            Class::Memcpy => self.gpu_op(self.builder.fixed.memcpy, head, dur_ns),
            Class::Memset => self.gpu_op(self.builder.fixed.memset, head, dur_ns),
            Class::GpuAnnotation => self.gpu_annotation(head, dur_ns),
            Class::Sync => self.sync(head, dur_ns),
            Class::Python => self.python(head, dur_ns),
            Class::ProfilerRange => self.counters(head, dur_ns),
            Class::Span | Class::MtiaDevice | Class::Hpu | Class::Collective => self.span(head, dur_ns),
        }
    }

    fn has_stream(&self) -> bool {
        self.event.args.left(args::bit(Arg::Stream)) != 0
    }

    /// The bytes that were copied or set; for a copy MTIA calls them `size`.
    fn bytes(&mut self, kind: Symbol) -> Option<i64> {
        let bytes = self.int(Arg::Bytes);
        if bytes.is_some() || kind != self.builder.fixed.memcpy {
            return bytes;
        }
        let others = &mut self.event.args.others;
        let at = others.iter().position(|(key, _)| key.bytes == b"size")?;
        let (_, size) = others.remove(at);
        self.integer(size)
    }

    fn op(&mut self, head: &Head, dur_ns: Option<i64>) {
        if self.event.args.left(args::bit(Arg::CollectiveName) | args::bit(Arg::GroupName)) != 0 {
            self.collective(self.builder.fixed.op);
        }
        let row = OpRow {
            row: self.row,
            name: head.name,
            category: head.category,
            track: self.track(),
            start_ns: head.start_ns,
            dur_ns,
            external_id: self.int(Arg::ExternalId),
            sequence: self.int(Arg::Sequence),
            forward_thread: self.small(Arg::ForwardThread),
            input_dims: self.json(Arg::InputDims),
            input_types: self.json(Arg::InputTypes),
            input_strides: self.json(Arg::InputStrides),
            concrete_inputs: self.json(Arg::ConcreteInputs),
            call_stack: self.text_or_json(Arg::CallStack),
            module_hierarchy: self.text_or_json(Arg::ModuleHierarchy),
            record_function_id: self.int(Arg::RecordFunctionId),
            event_index: self.int(Arg::EventIndex),
            finished: self.boolean(Arg::Finished),
        };
        self.batch.tables.ops.push(row);
    }

    fn launch(&mut self, head: &Head, dur_ns: Option<i64>) {
        let row = LaunchRow {
            row: self.row,
            name: head.name,
            category: head.category,
            track: self.track(),
            start_ns: head.start_ns,
            dur_ns,
            correlation: self.int(Arg::Correlation),
            external_id: self.int(Arg::ExternalId),
            callback_id: self.small(Arg::CudaCallback).or_else(|| self.small(Arg::HipCallback)),
            kernel: self.text_or_json(Arg::Kernel),
            grid: self.triple(Arg::Grid),
            block: self.triple(Arg::Block),
            shared_memory_bytes: self.small(Arg::SharedMemory),
            ..Default::default()
        };
        self.batch.tables.launches.push(row);
    }

    fn gpu_op(&mut self, kind: Symbol, head: &Head, dur_ns: Option<i64>) {
        let collective = args::bit(Arg::CollectiveName) | args::bit(Arg::GroupName) | args::bit(Arg::CommsId);
        if self.event.args.left(collective) != 0 {
            self.collective(self.builder.fixed.gpu_op);
        }
        let (device, stream) = self.device_and_stream();
        let graph_id = self.int(Arg::GraphId).filter(|&id| id != 0);
        let graph_node_id = self.identifier(Arg::GraphNodeId).filter(|_| graph_id.is_some());
        let row = GpuOpRow {
            row: self.row,
            kind,
            name: head.name,
            // No recorder writes it: `convert --to perfetto` does.
            mangled_name: self.text_or_json(Arg::MangledName),
            category: head.category,
            device,
            stream,
            start_ns: head.start_ns,
            dur_ns,
            correlation: self.int(Arg::Correlation),
            external_id: self.int(Arg::ExternalId),
            context: self.small(Arg::Context),
            queued_ns: self.int(Arg::Queued).filter(|&at| at != 0),
            grid: self.triple(Arg::Grid),
            block: self.triple(Arg::Block),
            registers: self.small(Arg::Registers),
            shared_memory_bytes: self.small(Arg::SharedMemory),
            blocks_per_sm: self.real(Arg::BlocksPerSm),
            warps_per_sm: self.real(Arg::WarpsPerSm),
            occupancy_pct: self.real(Arg::Occupancy),
            bytes: self.bytes(kind),
            bandwidth_gb_per_s: self.real(Arg::Bandwidth),
            graph_id,
            graph_node_id,
            priority: self.small(Arg::Priority),
            channel: self.small(Arg::Channel),
            ..Default::default()
        };
        self.batch.tables.gpu_ops.push(row);
    }

    fn gpu_annotation(&mut self, head: &Head, dur_ns: Option<i64>) {
        let (device, stream) = self.device_and_stream();
        let row = GpuAnnotationRow {
            row: self.row,
            name: head.name,
            device,
            stream,
            start_ns: head.start_ns,
            dur_ns,
            external_id: self.int(Arg::ExternalId),
        };
        self.batch.tables.gpu_annotations.push(row);
    }

    fn sync(&mut self, head: &Head, dur_ns: Option<i64>) {
        // -1 stands for unknown.
        let known = |id: &i64| *id >= 0;
        let has_stream = self.has_stream();
        let (device, stream) = self.device_and_stream();
        let row = SyncRow {
            row: self.row,
            name: head.name,
            category: head.category,
            device,
            stream: stream.filter(|id| has_stream && known(id)),
            start_ns: head.start_ns,
            dur_ns,
            correlation: self.int(Arg::Correlation),
            external_id: self.int(Arg::ExternalId),
            kind: self.text_or_json(Arg::SyncKind),
            event_id: self.int(Arg::WaitEvent).or_else(|| self.int(Arg::EventId)).filter(known),
            wait_stream: self.int(Arg::WaitStream).filter(known),
            wait_correlation: self.int(Arg::WaitCorrelation).filter(known),
            ..Default::default()
        };
        self.batch.tables.syncs.push(row);
    }

    fn python(&mut self, head: &Head, dur_ns: Option<i64>) {
        let row = PythonRow {
            row: self.row,
            name: head.name,
            track: self.track(),
            start_ns: head.start_ns,
            dur_ns,
            python_id: self.int(Arg::PythonId),
            python_parent_id: self.int(Arg::PythonParentId),
            module_id: self.small(Arg::PythonModuleId),
            call_stack: self.text_or_json(Arg::CallStack),
            event_index: self.int(Arg::EventIndex),
            finished: self.boolean(Arg::Finished),
        };
        self.batch.tables.python.push(row);
    }
}
