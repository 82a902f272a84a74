//! Which table an event belongs to.

/// The kind of event that a category stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Op,
    Launch,
    Kernel,
    Memcpy,
    Memset,
    GpuAnnotation,
    Sync,
    Python,
    ProfilerRange,
    Span,
}

impl Class {
    /// The class of category `text`, in the spelling of any recorder version.
    pub(crate) fn of(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "cpu_op" | "operator" | "user_annotation" | "python" | "hpu_op" => Self::Op,
            "cuda_runtime"
            | "cuda_driver"
            | "runtime"
            | "mtia_runtime"
            | "glow_runtime"
            | "xpu_runtime"
            | "xpu_driver"
            | "privateuse1_runtime"
            | "privateuse1_driver" => Self::Launch,
            "kernel" => Self::Kernel,
            "gpu_memcpy" | "memcpy" => Self::Memcpy,
            "gpu_memset" | "memset" => Self::Memset,
            "gpu_user_annotation" => Self::GpuAnnotation,
            "cuda_sync" | "xpu_sync" | "cuda_event" => Self::Sync,
            "python_function" => Self::Python,
            "cuda_profiler_range" => Self::ProfilerRange,
            _ => Self::Span,
        }
    }
}
