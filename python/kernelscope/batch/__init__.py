"""Many traces at once: one Parquet data set per table, read by as many workers as there are cores.

``run`` fills a lake, ``scan`` opens one. Nothing here holds more than a few lines per trace, however many
there are: tables exist in the workers only.
"""

from kernelscope.lazy import import_lazily

# What only some need, such as readers of lakes, others do not pay for.
import_lazily(__name__)
