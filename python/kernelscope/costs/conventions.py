"""Available counting rules: kernelscope's own, and the rules of other tools for comparison."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernelscope.costs import pyprof, torch_counter, tracelens
from kernelscope.costs.registry import Function, Model, candidates, find_model

ConventionName = Literal["kernelscope", "torch", "tracelens", "pyprof"]


@dataclass(frozen=True, slots=True)
class Convention:
    """A set of counting rules.

    ``own`` are the models that replace kernelscope's; ``counted`` the operators that are counted (None: all
    with a model); ``dense`` whether every product counts as dense and real, without masks and complex
    arithmetic; ``moves_bytes`` whether the convention includes memory traffic.
    """

    name: str
    own: Mapping[str, Function]
    counted: frozenset[str] | None
    dense: bool
    moves_bytes: bool

    def find(self, name: str) -> Model | None:
        """Returns the model of an operator under this convention, or None."""
        if self.counted is None and not self.own:
            return find_model(name)
        for known in candidates(name):
            if known in self.own:
                return Model(known.rpartition("::")[2], self.name, self.own[known], composite=False)
            if self.counted is None or known in self.counted:
                return find_model(known)
        return None


CONVENTIONS: dict[str, Convention] = {
    "kernelscope": Convention("kernelscope", {}, None, dense=False, moves_bytes=True),
    "torch": Convention("torch", torch_counter.OWN, torch_counter.COUNTED, dense=True, moves_bytes=False),
    "tracelens": Convention("tracelens", tracelens.OWN, frozenset(), dense=False, moves_bytes=True),
    "pyprof": Convention("pyprof", pyprof.OWN, frozenset(), dense=False, moves_bytes=True),
}
