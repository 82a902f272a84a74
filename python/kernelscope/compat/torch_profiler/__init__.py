"""The tables of torch.profiler, from the file alone."""

from kernelscope.lazy import import_lazily

import_lazily(__name__)
