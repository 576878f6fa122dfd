"""The call of Triton's compiled launcher as source text. Below python_core.py."""

from __future__ import annotations

from collections.abc import Sequence

from launchkit.dispatch import triton_seam as seam

# How the compiled C launcher takes its arguments, in proven versions: that of one kind of kernel, and
# the one of all. {args} are the kernel's arguments in signature order, folded ones included: the
# launcher skips those itself.
_OF_A_KIND = (
    "__call(__x, __y, __z, __stream, __plan.function, __plan.cooperative, __plan.pdl, "
    "None, None, __plan.metadata, None, None, None{args})"
)
_OF_ALL = (
    "__call(__x, __y, __z, __stream, __plan.function, __plan.cooperative, __plan.pdl, "
    "__plan.metadata, None, None, None, None, None, __plan.annotations, __plan.signature, ({tuple}))"
)
_RUN_LAUNCH = (
    "__call(__x, __y, __z, __stream, __plan.function, __plan.metadata, None, None, None{args})"
)


def launch_text(arguments: Sequence[str]) -> tuple[str, str]:
    """Return the source of the C launcher's call and of Triton's own launcher's, for one kernel.

    Names read: ``__call``, ``__x`` ``__y`` ``__z``, ``__stream``, ``__plan`` and the arguments.
    """
    separated = "".join(f", {argument}" for argument in arguments)
    as_tuple = "".join(f"{argument}, " for argument in arguments)
    proven = _OF_A_KIND if seam.GENERATES_LAUNCHERS else _OF_ALL
    direct = proven if seam.VERSION in seam.PROVEN else _RUN_LAUNCH
    return (
        direct.format(args=separated, tuple=as_tuple),
        _RUN_LAUNCH.format(args=separated),
    )
