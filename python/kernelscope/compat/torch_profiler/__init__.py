"""The tables of torch.profiler, from the file alone."""

from kernelscope.compat.torch_profiler.key_averages_table import KeyAverages, key_averages

__all__ = ["KeyAverages", "key_averages"]
