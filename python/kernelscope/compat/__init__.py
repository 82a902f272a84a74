"""Output of other tools for a trace, built on ``kernelscope.analysis``, one package per tool."""

from kernelscope.lazy import import_lazily

import_lazily(__name__)
