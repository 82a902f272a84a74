"""The reports of ``nsys stats`` and the rules of ``nsys analyze``, under the same names.

docs/nsys.md lists the differences from nsys, each with evidence that nsys is wrong.
"""

from kernelscope.lazy import import_lazily
from kernelscope.trace import about_a_trace

import_lazily(__name__, entry=about_a_trace)
