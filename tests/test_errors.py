"""The exceptions, and which kind of error of the reader becomes which."""

import pickle
from pathlib import Path

import pytest

import kernelscope as ks
from kernelscope import _traceparse, errors

# Every kind of error of the reader: the exception, and the builtin that people catch.
KINDS = {
    "NotFound": (errors.TraceNotFoundError, FileNotFoundError),
    "PermissionDenied": (errors.TracePermissionError, PermissionError),
    "NotAFile": (errors.NotAFileError, OSError),
    "UnknownFormat": (errors.NotATraceError, ValueError),
    "Damaged": (errors.TraceFormatError, ValueError),
    "Strict": (errors.StrictError, errors.TraceFormatError),
    "InvalidArgument": (errors.InvalidArgumentError, ValueError),
    "Io": (errors.TraceReadError, OSError),
    "Interrupted": (KeyboardInterrupt, BaseException),
}
CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.KernelscopeError)
]


def test_every_kind_has_its_exception() -> None:
    assert _traceparse.error_classes() == {kind: ours for kind, (ours, _) in KINDS.items()}
    for ours, builtin in KINDS.values():
        assert issubclass(ours, builtin)
        assert issubclass(ours, ks.KernelscopeError) or ours is KeyboardInterrupt


@pytest.mark.parametrize("cls", CLASSES)
def test_exception_carries_place_and_survives_pickling(cls: type[errors.KernelscopeError]) -> None:
    error = cls("a.json: broken", path="a.json", offset=7)
    copy = pickle.loads(pickle.dumps(error))
    for each in (error, copy):
        assert (type(each), str(each), each.path, each.offset) == (cls, "a.json: broken", "a.json", 7)


def test_missing_path(tmp_path: Path) -> None:
    path = tmp_path / "absent.json"
    with pytest.raises(FileNotFoundError) as caught:
        ks.read(path)
    assert isinstance(caught.value, errors.TraceNotFoundError)
    assert caught.value.path == caught.value.filename == str(path)
    assert str(path) in str(caught.value)


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(errors.NotAFileError, match=r"folder|directory"):
        ks.read(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"hello, world\n", b"\x7fELF\x02\x01\x01" + bytes(100), b"PK\x03\x04"]
)
def test_no_trace(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.json"
    path.write_bytes(content)
    with pytest.raises(errors.NotATraceError) as caught:
        ks.read(path)
    assert caught.value.path == str(path)


def test_strict_says_where(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}, 5]}')
    with pytest.raises(errors.StrictError) as caught:
        ks.read(path, strict=True)
    assert caught.value.offset == path.read_bytes().index(b"5]")
    trace = ks.read(path)
    assert (trace.meta.seen, trace.meta.kept, trace.meta.dropped) == (2, 1, 1)


def test_argument_without_sense() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="threads"):
        ks.read("trace.json", threads=0)
