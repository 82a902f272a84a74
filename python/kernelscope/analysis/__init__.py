"""Questions about a trace: frames in, frames out.

Every function takes a :class:`kernelscope.Trace` and returns a ``polars.DataFrame``. Its documentation lists
the columns with their units. Unknown values are null, never 0.
"""

from kernelscope.lazy import import_lazily
from kernelscope.trace import about_a_trace

import_lazily(__name__, entry=about_a_trace)
