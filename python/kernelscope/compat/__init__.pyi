from kernelscope.compat import hta as hta
from kernelscope.compat import nsys as nsys
from kernelscope.compat import pyprof as pyprof
from kernelscope.compat import torch_profiler as torch_profiler
