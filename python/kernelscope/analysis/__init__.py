"""Questions about a trace: frames in, frames out.

Every function takes a :class:`kernelscope.Trace` and gives a ``polars.DataFrame`` whose columns its
documentation names with their units. Unknown is null, never 0.
"""

from kernelscope.lazy import import_lazily
from kernelscope.trace import about_a_trace

import_lazily(__name__, entry=about_a_trace)
