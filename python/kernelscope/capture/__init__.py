"""Puts operator, shapes, types, module and source line of every call of PyTorch on the timeline.

``with annotate():`` around a model, or ``init()`` once at the top of a program, and every kernel in an nsys
report or a profiler trace can be found by the function that launched it. It patches nothing in torch: calls
are seen through a torch function mode, modules through forward hooks, the backward pass through hooks of its
nodes. Nothing waits for the GPU. ``profile`` records a complete trace with the PyTorch profiler,
``profile_captures`` what is captured into CUDA and HIP graphs (for that it wraps two methods of
``torch.cuda.CUDAGraph`` while it lasts), and ``python -m kernelscope.capture script.py`` runs a script as
it is.

Needs PyTorch 2.2 or later, and for the backend ``nvtx`` the package of that name; both are imported when
they are first used.
"""

from kernelscope.capture.annotation import annotate, init, stop, wrap
from kernelscope.capture.graph_captures import profile_captures
from kernelscope.capture.profiling import profile, trace_handler

__all__ = ["annotate", "init", "profile", "profile_captures", "stop", "trace_handler", "wrap"]
