"""Kernel names independent of the demangler that wrote them."""

import re
from collections import defaultdict

import polars as pl

# NVIDIA's demangler writes types of template values, unnamed namespaces and lambdas in ways of its own, and
# the parameters of a template where they stand for types of arguments.
_UNNAMED = re.compile(r"<unnamed>|\{anonymous\}")
_LAMBDA = re.compile(r"\[lambda\(([^()]*)\) \(instance (\d+)\)\]")
_TRUTH = re.compile(r"\(bool\)([01])")
_TYPED = re.compile(r"\((?:(?:un)?signed )?(?:char|short|int|long|long long)\)(?=-?\d)")
_SUFFIX = re.compile(r"\b(\d+)(?:ul|ull|u|l|ll)\b")
_SPACE = re.compile(r" ?([*&,<>()]) ?")


def kernel_key(name: str) -> str:
    """Returns the name without differences between demanglers.

    It consists of the kernel's own name and its template values.

    The parameter types are left out, since the template contains them, too.

    Example: ``kernel_key("void <unnamed>::fill<(int)4, (bool)1>(T1 *)")`` is
    ``"void(anonymous namespace)::fill<4,true>"``.
    """
    text = _LAMBDA.sub(r"{lambda(\1)#\2}", _UNNAMED.sub("(anonymous namespace)", name))
    text = _TRUTH.sub(lambda found: "true" if found[1] == "1" else "false", text)
    # Long runs of blanks would take the pattern long.
    text = " ".join(_SUFFIX.sub(r"\1", _TYPED.sub("", text)).split())
    text = _SPACE.sub(r"\1", text)
    return text[: _arguments(text)]


def _arguments(text: str) -> int:
    """Where the arguments at the end of a name begin; the end where it has none."""
    depth = 0
    for at in range(len(text) - 1, 0, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth <= 0:
            return at if text.endswith(")") else len(text)
    return len(text)


def kernels_as_later(before: pl.Series, after: pl.Series) -> pl.DataFrame:
    """Returns the names in ``after`` of kernels whose names occur only in ``before``.

    A name is included if ``after`` has the same kernel.

    Columns: ``name`` and ``later_name``, both categorical like the two columns of names.
    """
    known = after.unique().drop_nulls()
    by_key: defaultdict[str, list[str]] = defaultdict(list)
    for name in known.cast(pl.String).sort():
        by_key[kernel_key(name)].append(name)
    others = before.unique().drop_nulls()
    others = others.filter(~others.is_in(known.implode())).cast(pl.String).sort().to_list()
    found = [(name, by_key[key][0]) for name in others if len(by_key.get(key := kernel_key(name), ())) == 1]
    table = pl.DataFrame(found, schema={"name": pl.String, "later_name": pl.String}, orient="row")
    return table.select(pl.col("name").cast(before.dtype), pl.col("later_name").cast(after.dtype))
