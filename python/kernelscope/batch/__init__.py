"""Many traces at once: one Parquet data set per table, read by as many workers as there are cores.

``run`` fills a lake, ``scan`` opens one. Nothing here holds more than a few lines per trace, however many
there are: tables exist in the workers only.
"""

from kernelscope.lazy import import_lazily

# The coordinator needs no Polars, and must not pay for it.
import_lazily(__name__)
