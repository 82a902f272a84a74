"""Where in the user's program a call was made."""

import importlib
import inspect
import os
from types import CodeType, FrameType
from typing import Any

# Deeper stacks are machinery.
_MOST_FRAMES = 200


class Frames:
    """Finds the frames of a call that belong to neither torch nor this package."""

    def __init__(self, depth: int) -> None:
        torch: Any = importlib.import_module("torch")
        self._hidden = tuple(
            os.path.dirname(os.path.abspath(path)) + os.sep for path in (str(torch.__file__), __file__)
        )
        self._depth = depth
        self._shown: dict[CodeType, bool] = {}

    def find(self) -> tuple[tuple[str, int], ...]:
        """File and line of the frames, outermost first."""
        found: list[tuple[str, int]] = []
        frame: FrameType | None = inspect.currentframe()
        for _ in range(_MOST_FRAMES):
            if frame is None or len(found) >= self._depth:
                break
            if self._is_shown(frame.f_code):
                found.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        return tuple(reversed(found))

    def _is_shown(self, code: CodeType) -> bool:
        known = self._shown.get(code)
        if known is None:
            path = os.path.abspath(code.co_filename)
            is_file = not code.co_filename.startswith("<frozen")
            known = self._shown[code] = is_file and not path.startswith(self._hidden)
        return known
