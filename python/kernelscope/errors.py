"""The exceptions of the package.

Every class derives from :class:`KernelscopeError` and from the builtin that people catch.
"""

import errno


class KernelscopeError(Exception):
    """Base of every error that the package raises on purpose.

    ``path`` is the file and ``offset`` the byte in its uncompressed content, where known.
    """

    path: str | None
    offset: int | None

    def __init__(self, message: str, *, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        # OSError would put its number and file name in front, which the message already says.
        return str(self.args[0])


class TraceNotFoundError(KernelscopeError, FileNotFoundError):
    """The path does not exist."""

    def __init__(self, message: str, *, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(message, path=path, offset=offset)
        self.errno = errno.ENOENT
        self.filename = path


class TracePermissionError(KernelscopeError, PermissionError):
    """The path may not be read."""

    def __init__(self, message: str, *, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(message, path=path, offset=offset)
        self.errno = errno.EACCES
        self.filename = path


class NotAFileError(KernelscopeError, OSError):
    """The path is a folder, or no file with a trace in it."""


class TraceReadError(KernelscopeError, OSError):
    """The operating system failed while the file was read."""


class NotATraceError(KernelscopeError, ValueError):
    """The file is no trace of a known format."""


class TraceFormatError(KernelscopeError, ValueError):
    """The trace is damaged beyond what can be repaired."""


class StrictError(TraceFormatError):
    """Strict reading met what tolerant reading repairs or drops."""


class InvalidArgumentError(KernelscopeError, ValueError):
    """An argument makes no sense."""


class NotRecordedError(KernelscopeError, LookupError):
    """The recording lacks what the question is about: it was not set up for it."""


class LakeBusyError(KernelscopeError, BlockingIOError):
    """Another batch is writing into the lake."""


class LakeFullError(KernelscopeError, OSError):
    """The disk under a lake is full, or the quota used up; the lake is whole."""


class RankUnknownError(KernelscopeError, ValueError):
    """Neither a trace nor its name has its rank."""


class RankTakenError(KernelscopeError, ValueError):
    """Two traces claim to be of the same rank of the same run."""


class ChangedWhileReadError(KernelscopeError, OSError):
    """The file changed while it was read: it is still being written."""


class MemoryLimitError(KernelscopeError, ValueError):
    """A trace needs more memory than is allowed."""


class WorkerDiedError(KernelscopeError, RuntimeError):
    """The process that read a trace was killed, or fell over."""


class SchedulerLostError(KernelscopeError, ConnectionError):
    """The scheduler that a batch works through went away."""


class InternalError(KernelscopeError, RuntimeError):
    """A fault of the package itself; please report it."""
