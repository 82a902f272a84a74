"""What several questions ask of the GPU work of a trace, each worked out once."""

from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING

from kernelscope.analysis.classes import Classes
from kernelscope.analysis.covering import Intervals
from kernelscope.analysis.launch_classes import launch_classes

if TYPE_CHECKING:
    from kernelscope.trace import Trace


class GpuWork:
    """The rows of ``gpu_ops``, by class and in order of time. Any number of threads may ask."""

    def __init__(self, trace: "Trace") -> None:
        self._trace = trace
        self._lock = RLock()

    @property
    def launches(self) -> Classes:
        """Their classes: see :func:`kernelscope.analysis.launch_classes.launch_classes`."""
        with self._lock:
            return self._launches

    @property
    def on_devices(self) -> Intervals:
        """When each device works."""
        with self._lock:
            return self._on_devices

    @cached_property
    def _launches(self) -> Classes:
        return launch_classes(self._trace)

    @cached_property
    def _on_devices(self) -> Intervals:
        return Intervals(self._trace.gpu_ops.select("device", "start_ns", "dur_ns"), by=["device"])
