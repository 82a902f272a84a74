"""The command ``kernelscope``; one subcommand per file.

No module here imports anything heavy at its top, so that ``--help`` answers immediately.
"""

from kernelscope.cli.main import main as main
