"""``python -m kernelscope``."""

import sys

from kernelscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
