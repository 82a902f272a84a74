"""The exceptions of the package.

Every class derives from :class:`KernelscopeError` and from the matching builtin exception.
"""

import contextlib
import errno
from collections.abc import Generator, Iterable


class KernelscopeError(Exception):
    """Base of every error that the package raises intentionally.

    ``path`` is the file and ``offset`` the byte in its uncompressed content, if known.
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
    """No permission to read the path."""

    def __init__(self, message: str, *, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(message, path=path, offset=offset)
        self.errno = errno.EACCES
        self.filename = path


class NotAFileError(KernelscopeError, OSError):
    """The path is a folder, or is not a file with a trace."""


class TraceReadError(KernelscopeError, OSError):
    """The operating system reported an error while the file was read."""


class StorageError(KernelscopeError, ConnectionError):
    """A remote storage does not answer, or fails."""


class NotATraceError(KernelscopeError, ValueError):
    """The file is not a trace of a known format."""


class TraceFormatError(KernelscopeError, ValueError):
    """The trace is damaged beyond repair."""


class StrictError(TraceFormatError):
    """Strict reading found something that tolerant reading repairs or drops."""


class InvalidArgumentError(KernelscopeError, ValueError):
    """An argument is invalid."""


class NotRecordedError(KernelscopeError, LookupError):
    """The recording was configured without the required data."""


class LakeBusyError(KernelscopeError, BlockingIOError):
    """Another batch is writing to the lake."""


class LakeFullError(KernelscopeError, OSError):
    """The disk under a lake is full, or the quota is exhausted. Ranks in the lake are complete."""


class RankTakenError(KernelscopeError, ValueError):
    """The place of a rank is occupied by another trace of the same run, or by a file that no batch wrote."""


class ChangedWhileReadError(KernelscopeError, OSError):
    """The file changed while it was read: it is still being written."""


class TaskTimeoutError(KernelscopeError, TimeoutError):
    """A trace was not read, or a statement not answered, within its time limit. The process was stopped."""


class MemoryLimitError(KernelscopeError, ValueError):
    """A trace or a statement needs more memory than is allowed."""


class WorkerDiedError(KernelscopeError, RuntimeError):
    """The process that read a trace was killed or crashed."""


class SchedulerLostError(KernelscopeError, ConnectionError):
    """The connection to the scheduler of a batch was lost."""


class BatchStoppedError(KernelscopeError, RuntimeError):
    """A batch was stopped before it was done."""


class UnusableWorkersError(KernelscopeError, RuntimeError):
    """The workers of a scheduler cannot run the batch: there are none, or they lack something."""


class ServerError(KernelscopeError, OSError):
    """The viewer cannot listen on the requested address."""


class InternalError(KernelscopeError, RuntimeError):
    """A bug of the package. Please report it."""


@contextlib.contextmanager
def naming(copy: str, path: str) -> Generator[None]:
    """Replaces the temporary copy in error messages by the name that the user passed."""
    try:
        yield
    except KernelscopeError as error:
        error.args = (str(error).replace(copy, path),)
        error.path = path if error.path == copy else error.path
        raise


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Returns the end of a sentence about an unknown name with the closest match, or nothing."""
    # What only an error needs must not cost the start of the program.
    from difflib import get_close_matches

    by_case = {name.lower(): name for name in known}
    close = get_close_matches(given.lower(), by_case, n=1)
    return f"; did you mean {by_case[close[0]]}?" if close else ""
