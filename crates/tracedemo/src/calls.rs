//! Runtime calls and launches of a plan.

use crate::event::{Hole, Phase, Shape, quoted};
use crate::gpu::Kernel;
use crate::library::{CallSpec, CollectiveArgs, Effect, GraphNode, Role, Stream, Thread, add};
use crate::plan::{Builder, Instr};

/// Name, callback id and mean duration of a runtime or driver call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Api {
    name: &'static str,
    cbid: u32,
    dur_ns: u32,
}

impl Api {
    pub(crate) const LAUNCH: Self = Self { name: "cudaLaunchKernel", cbid: 211, dur_ns: 4_100 };
    pub(crate) const LAUNCH_EX_C: Self = Self { name: "cudaLaunchKernelExC", cbid: 430, dur_ns: 5_300 };
    pub(crate) const DRIVER_LAUNCH: Self = Self { name: "cuLaunchKernelEx", cbid: 652, dur_ns: 3_600 };
    pub(crate) const MEMCPY: Self = Self { name: "cudaMemcpyAsync", cbid: 41, dur_ns: 6_900 };
    pub(crate) const MEMSET: Self = Self { name: "cudaMemsetAsync", cbid: 51, dur_ns: 3_900 };
    pub(crate) const STREAM_SYNC: Self = Self { name: "cudaStreamSynchronize", cbid: 131, dur_ns: 2_600 };
    pub(crate) const DEVICE_SYNC: Self = Self { name: "cudaDeviceSynchronize", cbid: 165, dur_ns: 9_000 };
    pub(crate) const RECORD: Self = Self { name: "cudaEventRecord", cbid: 135, dur_ns: 1_700 };
    pub(crate) const STREAM_WAIT: Self = Self { name: "cudaStreamWaitEvent", cbid: 147, dur_ns: 1_100 };
    pub(crate) const QUERY: Self = Self { name: "cudaEventQuery", cbid: 138, dur_ns: 1_900 };
    pub(crate) const CAPTURING: Self = Self { name: "cudaStreamIsCapturing", cbid: 317, dur_ns: 700 };
    pub(crate) const ATTRIBUTE: Self = Self { name: "cudaFuncSetAttribute", cbid: 273, dur_ns: 800 };
    pub(crate) const GRAPH_LAUNCH: Self = Self { name: "cudaGraphLaunch", cbid: 311, dur_ns: 31_000 };
}

impl Builder {
    /// A runtime call that starts nothing on the GPU.
    pub(crate) fn call(&mut self, api: Api) {
        self.call_with(api, Effect::None);
    }

    pub(crate) fn call_with(&mut self, api: Api, effect: Effect) {
        let spec = self.add_call(api, effect, self.thread);
        self.push_after(380, Instr::Call(spec));
    }

    /// A poll on the watchdog's thread.
    pub(crate) fn background_query(&mut self) {
        let spec = self.add_call(Api::QUERY, Effect::None, Thread::Watchdog);
        self.push(Instr::Background(spec));
    }

    /// Lets `later` wait for what is queued on `earlier`.
    pub(crate) fn order_streams(&mut self, earlier: Stream, later: Stream) {
        self.call_with(Api::RECORD, Effect::Record(earlier));
        self.call_with(Api::STREAM_WAIT, Effect::StreamWait(later));
    }

    /// Launches a kernel on the compute stream.
    pub(crate) fn launch(&mut self, kernel: &Kernel) {
        self.launch_by(Api::LAUNCH, kernel);
    }

    /// The same by a certain call.
    pub(crate) fn launch_by(&mut self, api: Api, kernel: &Kernel) {
        let work = self.library.kernel(kernel, Stream::Compute, GraphNode::default(), None);
        self.start(api, work, 1);
    }

    pub(crate) fn launch_collective(&mut self, kernel: &Kernel, args: CollectiveArgs) {
        let work = self.library.kernel(kernel, Stream::Comm, GraphNode::default(), Some(args));
        self.start(Api::LAUNCH_EX_C, work, 1);
    }

    /// Replays a CUDA graph of kernels.
    pub(crate) fn launch_graph(&mut self, kernels: &[Kernel]) {
        const GRAPH: u64 = 3;
        let first = self.library.works.len() as u32;
        for (node, kernel) in (GRAPH << 32..).zip(kernels) {
            self.library.kernel(kernel, Stream::Compute, (GRAPH, node), None);
        }
        self.start(Api::GRAPH_LAUNCH, first, kernels.len() as u32);
    }

    /// Copies between host and device; `kind` is as in `HtoD (Pinned -> Device)`.
    pub(crate) fn copy(&mut self, kind: &str, stream: Stream, bytes: i64) {
        /// PCIe 5 x16, as measured by large pinned copies.
        const BYTES_PER_NS: i64 = 55;
        let dur_ns = (bytes / BYTES_PER_NS) as u32 + 1_500;
        let work = self.library.transfer(Role::Memcpy, &format!("Memcpy {kind}"), stream, bytes, dur_ns);
        self.start(Api::MEMCPY, work, 1);
    }

    pub(crate) fn memset(&mut self, bytes: i64) {
        let (name, dur_ns) = ("Memset (Device)", (bytes / 2_600) as u32 + 900);
        let work = self.library.transfer(Role::Memset, name, Stream::Compute, bytes, dur_ns);
        self.start(Api::MEMSET, work, 1);
    }

    fn start(&mut self, api: Api, first: u32, count: u32) {
        self.call_with(api, Effect::Launch { first, count });
    }

    fn add_call(&mut self, api: Api, effect: Effect, thread: Thread) -> u32 {
        let process = self.library.process;
        let tid = process.tid(thread);
        let is_driver = !api.name.starts_with("cuda");
        let category = if is_driver { "cuda_driver" } else { "cuda_runtime" };
        let shape = Shape::slice(category, api.name, process.pid, tid)
            .hole("External id", Hole::Value(0))
            .json("cbid", api.cbid)
            .hole("correlation", Hole::Value(1));
        // Kineto starts a flow at a launch, and ends one at every other call.
        let phase = if matches!(effect, Effect::Launch { .. }) { Phase::FlowStart } else { Phase::FlowEnd };
        let spec = CallSpec {
            name: self.library.name(api.name),
            shapes: self.library.with_and_without_op(shape),
            flow_shape: self.library.shape(Shape::flow(phase, "ac2g", process.pid, tid)),
            sync_shape: self.sync_shape(effect),
            dur_ns: api.dur_ns,
            effect,
        };
        add(&mut self.library.calls, spec)
    }

    fn sync_shape(&mut self, effect: Effect) -> Option<u32> {
        let Effect::StreamSync(stream) = effect else { return None };
        let device = self.library.process.device;
        let shape = Shape::slice("cuda_sync", "Stream Sync", device, stream.id())
            .json("cuda_sync_kind", quoted("Stream Sync"))
            .json("stream", stream.id())
            .hole("correlation", Hole::Value(1))
            .json("device", device)
            .json("context", 1);
        Some(self.library.shape(shape))
    }
}
