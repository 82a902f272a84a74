"""The reports of ``nsys stats`` and the rules of ``nsys analyze``, by the same names.

docs/nsys.md lists where they differ from nsys, each with the proof that nsys is wrong there.
"""

from kernelscope.lazy import import_lazily
from kernelscope.trace import about_a_trace

import_lazily(__name__, entry=about_a_trace)
