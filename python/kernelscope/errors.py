"""The exceptions of the package.

Every class derives from :class:`KernelscopeError` and from the builtin that people catch.
"""

import contextlib
import errno
from collections.abc import Generator, Iterable


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


class StorageError(KernelscopeError, ConnectionError):
    """A storage behind a URL does not answer, or fails."""


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


class RankTakenError(KernelscopeError, ValueError):
    """The place of a rank is taken: by another trace of the same run, or by a file that no batch wrote."""


class ChangedWhileReadError(KernelscopeError, OSError):
    """The file changed while it was read: it is still being written."""


class TaskTimeoutError(KernelscopeError, TimeoutError):
    """A trace was not read, or a statement not answered, within its time; the process was ended."""


class MemoryLimitError(KernelscopeError, ValueError):
    """A trace or a statement needs more memory than is allowed."""


class WorkerDiedError(KernelscopeError, RuntimeError):
    """The process that read a trace was killed, or fell over."""


class SchedulerLostError(KernelscopeError, ConnectionError):
    """The scheduler that a batch works through went away."""


class BatchStoppedError(KernelscopeError, RuntimeError):
    """A batch was asked to end before its work was done."""


class UnusableWorkersError(KernelscopeError, RuntimeError):
    """The workers of a scheduler cannot do the work: there are none, or they lack what the batch needs."""


class ServerError(KernelscopeError, OSError):
    """The viewer cannot listen where it was told to."""


class InternalError(KernelscopeError, RuntimeError):
    """A fault of the package itself; please report it."""


@contextlib.contextmanager
def naming(copy: str, path: str) -> Generator[None]:
    """Names in errors what the user gave in place of the temporary copy that was read."""
    try:
        yield
    except KernelscopeError as error:
        error.args = (str(error).replace(copy, path),)
        error.path = path if error.path == copy else error.path
        raise


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that is not known: the one that was probably meant, or nothing."""
    # What only an error needs must not cost the start of the program.
    from difflib import get_close_matches

    by_case = {name.lower(): name for name in known}
    close = get_close_matches(given.lower(), by_case, n=1)
    return f"; did you mean {by_case[close[0]]}?" if close else ""
