"""Elements of a view of the page: tables, figures, facts and notes, each with its meaning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple


@dataclass(frozen=True, slots=True)
class Part:
    """Something that a view shows."""

    kind: ClassVar[str]

    def payload(self) -> dict[str, Any]:
        """Returns the part for the page's script: its kind and its fields."""
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}


class Fact(NamedTuple):
    """A figure of the overview: its name, its value as text with the unit, its meaning, and its term.

    ``term`` is its column in frames, the key of the glossary.
    """

    label: str
    value: str
    what: str = ""
    term: str = ""


@dataclass(frozen=True, slots=True)
class Facts(Part):
    """Figures side by side; ``tiles`` draws them large."""

    kind: ClassVar[str] = "facts"
    id: str
    title: str
    items: Sequence[Fact]
    tiles: bool = False
    wide: bool = False
    """Whether they fill the room beside a narrow figure."""

    def payload(self) -> dict[str, Any]:
        """Returns the part for the page's script."""
        return {**Part.payload(self), "items": [[*fact] for fact in self.items]}


@dataclass(frozen=True, slots=True)
class Note(Part):
    """A remark about the shown data, or (``missing``) about missing data and how to record it."""

    kind: ClassVar[str] = "note"
    text: str
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Figure(Part):
    """A Plotly figure. A text that starts with ``--`` is a colour of the page's style sheet.

    Text from a trace must be escaped; see :func:`kernelscope.report.parts.cells.label`.
    """

    kind: ClassVar[str] = "figure"
    id: str
    title: str
    what: str
    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any] = field(default_factory=dict[str, Any])
    height: int = 360
    narrow: bool = False
    """Whether several figures of its kind are placed side by side."""
    wide: bool = False
    """Whether it fills the room beside narrow ones."""


@dataclass(frozen=True, slots=True)
class Group(Part):
    """Parts shown one at a time, with a selector."""

    kind: ClassVar[str] = "group"
    id: str
    title: str
    choices: Sequence[tuple[str, Part]]

    def payload(self) -> dict[str, Any]:
        """Returns the part for the page's script."""
        choices = [{"label": label, "part": part.payload()} for label, part in self.choices]
        return {**Part.payload(self), "choices": choices}


class Page(NamedTuple):
    """Entry of a view in the menu of the page: its id, its title, and its description."""

    id: str
    title: str
    what: str


@dataclass(frozen=True, slots=True)
class View:
    """A view of the page, shown by one entry of its menu."""

    id: str
    title: str
    what: str
    parts: Sequence[Part]

    @property
    def is_empty(self) -> bool:
        """Returns whether the view only reports missing data."""
        notes = [part for part in self.parts if isinstance(part, Note)]
        return len(notes) == len(self.parts) and any(note.missing for note in notes)

    def payload(self) -> dict[str, Any]:
        """Returns the view for the page's script."""
        return {
            "id": self.id,
            "title": self.title,
            "what": self.what,
            "parts": [part.payload() for part in self.parts],
        }

    def _repr_html_(self) -> str:
        """The view in a notebook: its facts and the first rows of its tables."""
        from kernelscope.report.html.notebook import to_static

        return to_static(self.payload())
