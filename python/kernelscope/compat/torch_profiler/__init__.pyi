from kernelscope.compat.torch_profiler.key_averages import KeyAverages as KeyAverages
from kernelscope.compat.torch_profiler.key_averages import key_averages as key_averages
