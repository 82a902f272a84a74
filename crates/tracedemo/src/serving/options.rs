//! What a caller can choose of the traces of an engine.

/// Which recorder's trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServingRecorder {
    /// The PyTorch profiler on CUDA.
    Cuda,
    /// The PyTorch profiler on ROCm.
    Rocm,
    /// Nsight Systems with `--cuda-graph-trace=node` and `--include-blobs=true`.
    Nsys,
}

impl ServingRecorder {
    /// Every recorder.
    pub const ALL: [Self; 3] = [Self::Cuda, Self::Rocm, Self::Nsys];

    /// Name of the file that is written.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Cuda => "serving-cuda.json",
            Self::Rocm => "serving-rocm.json",
            Self::Nsys => "serving-nsys.sqlite",
        }
    }
}

/// Options of the traces of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingOptions {
    /// Steps that are served.
    pub steps: u32,
    /// Blocks of the model.
    pub layers: u32,
    /// Seed of everything that varies.
    pub seed: u64,
    /// Whether annotations mark the steps.
    pub marks: bool,
}

impl Default for ServingOptions {
    fn default() -> Self {
        Self { steps: 40, layers: 4, seed: 0, marks: true }
    }
}
