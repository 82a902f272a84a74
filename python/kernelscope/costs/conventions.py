"""The ways of counting that can be chosen: kernelscope's own, and those it is compared with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernelscope.costs import pyprof, torch_counter, tracelens
from kernelscope.costs.registry import Function, Model, candidates, find_model

ConventionName = Literal["kernelscope", "torch", "tracelens", "pyprof"]


@dataclass(frozen=True, slots=True)
class Convention:
    """One way of counting.

    ``own`` are the models that replace kernelscope's; ``counted`` the operators that are counted at all
    (None: all that have a model); ``dense`` whether every product is taken as dense and real, without masks
    and complex arithmetic; ``moves_bytes`` whether the convention says anything about memory traffic.
    """

    name: str
    own: Mapping[str, Function]
    counted: frozenset[str] | None
    dense: bool
    moves_bytes: bool

    def find(self, name: str) -> Model | None:
        """The model of an operator under this convention, or None."""
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
