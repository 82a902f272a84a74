"""Records operator, shapes, types, module and source line of every PyTorch call on the timeline.

Use ``with annotate():`` around a model, or call ``init()`` once at the start of a program. Then every kernel
in an nsys report or a profiler trace can be attributed to the function that launched it. Nothing in torch is
patched: a torch function mode records calls, forward hooks record modules, and hooks of autograd nodes record
the backward pass. Nothing waits for the GPU. ``profile`` records a complete trace with the PyTorch profiler.
``profile_captures`` records the captures of CUDA and HIP graphs (and wraps two methods of
``torch.cuda.CUDAGraph`` during that time). ``python -m kernelscope.capture script.py`` runs an unmodified
script.

Needs PyTorch 2.2 or later, and for the backend ``nvtx`` the package of that name. Both are imported on first
use.
"""

from kernelscope.capture.annotation import annotate, init, stop, wrap
from kernelscope.capture.graph_captures import profile_captures
from kernelscope.capture.profiling import profile, trace_handler

__all__ = ["annotate", "init", "profile", "profile_captures", "stop", "trace_handler", "wrap"]
