"""Short names of kernels: PyProf's, and more descriptive ones."""

import re

_COMPAT_REMOVED = ("void ", "at::", "cuda::", "native::", "(anonymous namespace)::")
_NAMESPACES = re.compile(r"\b(?:at|cuda|native)::|\(anonymous namespace\)::|<unnamed>::")
# Wrappers whose only template argument of interest is the kernel itself.
_WRAPPER = re.compile(r"^(?:cutlass::(?:device_)?[Kk]ernel\d*|cutlass::Kernel\d*)$")


def compat_short_name(name: str) -> str:
    """Returns the short name as PyProf cuts it, which is empty or ambiguous for many current kernels."""
    text = name.partition("<")[0]
    for part in _COMPAT_REMOVED:
        text = text.replace(part, "")
    return text.partition("(")[0]


def short_name(name: str) -> str:
    """Returns the short name of a kernel.

    Its return type, template arguments, parameters and PyTorch's namespaces are removed.

    Example: ``void <unnamed>::softmax_warp_forward<float, 5>(float*)`` is ``softmax_warp_forward``.
    """
    bare, first = _without_arguments(_NAMESPACES.sub("", name))
    # What stands before the last space outside of brackets is the return type.
    bare = bare.strip().rpartition(" ")[2] if not bare.startswith("operator") else bare
    if _WRAPPER.match(bare) and first:
        inner = re.match(r"[\w:]+", first.strip())
        bare = inner[0] if inner else bare
    return bare or name


def _without_arguments(text: str) -> tuple[str, str]:
    """``text`` up to its parameters and without what stands in angle brackets; and the first bracket."""
    kept: list[str] = []
    first: list[str] = []
    depth = brackets = 0
    for character in text:
        if character == "<":
            depth += 1
            brackets += depth == 1
            if depth == 1:
                continue
        elif character == ">" and depth:
            depth -= 1
            continue
        if depth == 0:
            if character == "(":
                break
            kept.append(character)
        elif brackets == 1:
            first.append(character)
    return "".join(kept), "".join(first)
