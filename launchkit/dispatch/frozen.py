"""``freeze``: a launch that is prepared once and takes only what varies. Above launcher.py.

frozen_arguments.py has the classes of what varies, frozen_plan.py the rest. With the C core a
call is made there (native/frozen.c), and comes here only where something is odd.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from launchkit import settings
from launchkit.dispatch import launch_counts, launcher, placing
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.frozen_arguments import bind_varying, check_varying, varying_arguments
from launchkit.dispatch.frozen_plan import FrozenPlan, freeze_plan, named_params
from launchkit.dispatch.grids import Grid
from launchkit.dispatch.layers import kernel_name, shown_name, take_apart
from launchkit.dispatch.native import extension, premises
from launchkit.dispatch.native.entries import Frozen
from launchkit.dispatch.native.layout import direct_layout
from launchkit.dispatch.verify_frozen import verify_frozen
from launchkit.errors import FrozenArgumentError


class FrozenLaunch(Frozen):
    """What ``launchkit.freeze`` returns: called with the varying arguments, it launches.

    They are passed by position, in the order in which ``varying`` named them, or by name.
    Returns the ``CompiledKernel`` as Triton does.

    Raises:
        FrozenArgumentError: an argument is missing or of another class than it was frozen for.
        VerifyError: LAUNCHKIT_VERIFY=1, and Triton would launch something else.
    """

    kernel: Any
    """The kernel as it was given."""
    grid: Any
    """The grid as it was given; a list as a tuple."""
    varying: tuple[str, ...]
    """Names of the arguments that a call takes, in their order."""
    frozen: Mapping[str, Any]
    """Every other parameter's value by name, those of configs and heuristics included."""
    options: Mapping[str, Any]
    """Compiler options such as num_warps, those of the config included."""
    config: Any
    """The config that was chosen; None for a plain kernel, or if each launch chooses."""
    compiled: Any
    """The compiled kernel; None if each launch chooses."""
    obstacle: str | None
    """Why every call is an ordinary launch; None for one that is really frozen."""

    def __init__(
        self,
        kernel: Any,
        grid: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        varying: tuple[str, ...],
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.grid = tuple(grid) if isinstance(grid, list) else grid
        self.varying = varying
        self.name = shown_name(kernel)
        self._given = (args, dict(kwargs))
        given = self._given_by_name()
        # First, since compiling takes its time; the rest have defaults.
        varying_arguments(self.name, kernel, given, tuple(n for n in varying if n in given))
        plan = freeze_plan(kernel, self.grid, args, kwargs)
        self._plan = plan if isinstance(plan, FrozenPlan) else None
        self.obstacle = plan if isinstance(plan, str) else None
        values = given if self._plan is None else self._plan.values
        self._arguments = varying_arguments(self.name, kernel, values, varying)
        self.frozen = MappingProxyType({n: v for n, v in values.items() if n not in varying})
        self.options = MappingProxyType({} if self._plan is None else self._plan.options)
        self.config = None if self._plan is None else self._plan.config
        self.compiled = None if self._plan is None else self._plan.compiled
        self._dims = self._fixed_dims()
        self._native = False
        self._prepare()
        launcher.add_handle(self)

    def __repr__(self) -> str:
        how = f", an ordinary launch each time: {self.obstacle}" if self.obstacle else ""
        takes = ", ".join(self.varying) or "nothing"
        return (
            f"<FrozenLaunch of {self.name} over {self.grid!r}: takes {takes}; "
            f"{len(self.frozen)} arguments frozen{how}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a frozen launch belongs to its process. Freeze another one there.")

    def wrap(self, wrap: Any) -> None:
        """Put ``wrap(fn, name)`` in front of the calls, or take it away with None."""
        self._through = None if wrap is None else wrap(self._direct, self.name)

    def relink(self) -> None:
        """Nothing is linked: launches are always counted."""

    # -- preparation

    def _given_by_name(self) -> dict[str, Any]:
        args, kwargs = self._given
        return {**dict(zip(_names_of(self.kernel), args, strict=False)), **kwargs}

    def _fixed_dims(self) -> Any:
        """Return the grid as sizes where nothing that varies is in it, else the grid."""
        if type(self.grid) is not Grid or self._plan is None:
            return self.grid
        fixed = self.grid.with_values(self.frozen)
        return fixed(self._plan.values) if not fixed.names & set(self.varying) else fixed

    def _prepare(self) -> None:
        """Lay the launch out for the C core, if it can make it."""
        plan, native = self._plan, extension.active()
        if plan is None or native is None:
            return
        names = list(plan.values)
        layout = direct_layout(plan.compiled, {name: i for i, name in enumerate(names)})
        if layout is None:
            return
        places = {name: place for place, name in enumerate(self.varying)}
        named = [(names[index], kind) for index, kind in layout[-1]]
        laid_out = named_params(plan.compiled, named, plan.pinned, places)
        params = tuple(param[1:] for param in laid_out)
        varying = tuple((a.name, a.example, a.specialize, a.align) for a in self._arguments)
        heuristics = plan.heuristics_hold if plan.heuristics and self.varying else None
        source = seam.device_source()
        device = (source.dlpack_type, source.tensors_on_cuda, plan.device)
        if not self._lay_out(
            plan.compiled, (*layout[:-1], params), varying, dict(plan.values), heuristics, device
        ):
            return
        self._native = self._set_grid(self._dims)
        launch_counts.counted(self.name, self)
        self._arm_again()

    def _arm_again(self) -> None:
        """Let the C core launch from now on, on the premises of now."""
        plan, native = self._plan, extension.active()
        if not self._native or plan is None or plan.launch is None or native is None:
            return
        if settings.current().verify:
            return  # each call has to come here
        found = premises.of_core(plan.jit, None, choose_only=False)
        if found is None or self._holds():
            return
        watches, sequences = found
        with contextlib.suppress(TypeError):  # a dictionary of a class of its own
            of_globals, contents = premises.of_globals(plan.launch)
            watched = native.WatchSet((*watches, *of_globals), (*sequences, *contents))
            source = seam.device_source()
            self._arm(watched, source.device, source.stream)

    # -- a call that the C core does not make

    def _call(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch with the varying arguments; ``grid``: what the grid function has said already."""
        given = bind_varying(self.name, self._arguments, args, kwargs)
        plan = self._plan
        if plan is None:
            return self._launch_as_given(given)
        if seam.active_driver() is plan.driver and seam.current_device() != plan.device:
            with seam.on_device(plan.device):
                return self._launch(plan, grid, given)
        return self._launch(plan, grid, given)

    def _launch_as_given(self, given: Mapping[str, Any]) -> Any:
        args, kwargs = self._given
        by_position = dict(zip(_names_of(self.kernel), args, strict=False))
        positional = [given.get(name, value) for name, value in by_position.items()]
        named = {name: value for name, value in given.items() if name not in by_position}
        return launcher.launch(self.kernel, self.grid, *positional, **{**kwargs, **named})

    def _launch(self, plan: FrozenPlan, grid: Any, given: Mapping[str, Any]) -> Any:
        values, launched = {**plan.values, **given}, {**plan.pinned, **given}
        self._check_heuristics(plan, values)
        if settings.current().verify:
            verify_frozen(self, plan, values, launched, given)
        obstacle = plan.obstacle()
        if obstacle is not None and grid is None:
            compiled = plan.run(self._dims, launched)
            launch_counts.through_triton(self.name, obstacle)
            return compiled
        self._arm_again()
        stream = seam.current_stream(plan.device)
        if grid is None:
            grid = self._dims(dict(values)) if callable(self._dims) else self._dims
        plan.call(grid, stream, launched)
        launch_counts.fast(self.name)
        return plan.compiled

    def _check_heuristics(self, plan: FrozenPlan, values: Mapping[str, Any]) -> None:
        changed = plan.changed_heuristic(values) if self.varying and plan.heuristics else None
        if changed is not None:
            name, found = changed
            frozen = self.frozen.get(name, self.options.get(name))
            raise FrozenArgumentError(self.name, f"heuristic {name}", repr(frozen), repr(found))

    def preview(self, values: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what a call would pass on, for LAUNCHKIT_VERIFY.

        (function, grid, threads, shared bytes, a word for each kernel parameter) for the driver,
        or (grid,) where Triton's launcher is called. ``values``: every argument by name;
        ``given``: those that vary.
        """
        passed = self._preview(*(given[name] for name in self.varying)) if self._native else None
        if passed is not None:
            return tuple(passed)
        return (self._dims(dict(values)) if callable(self._dims) else self._dims,)


def _names_of(kernel: Any) -> list[str]:
    return list(take_apart(kernel).jit.arg_names)


def freeze(
    kernel: Any, grid: Any, /, *args: Any, varying: Iterable[str] = (), **kwargs: Any
) -> FrozenLaunch:
    """Prepare one launch of a kernel, and return what makes it again with few arguments.

    Nothing is launched, but the kernel is compiled, and tuned if it is autotuned and nothing
    knows its config. Everything but the ``varying`` arguments is fixed from then on: their values,
    the config, the compiled kernel, the device. Frozen tensors are kept alive, and so is the
    memory that they have now: one that gets other memory later (``tensor.data = ...``) is not
    followed.

    Args:
        kernel: any Triton kernel, autotuned or plain, with heuristics or without.
        grid: as for ``launch``. A function, and a ``launchkit.grid`` of varying arguments, is
            evaluated at each call.
        args, kwargs: the kernel's arguments and options, as for ``launch``.
        varying: names of the arguments that each call passes anew: tensors of the dtype, device
            and 16-byte alignment of the one given here, numbers of its type and, for ints, of
            the class that Triton compiles for. A ``tl.constexpr`` cannot vary, nor can what a
            config or a heuristic gives.

    Raises:
        UsageError: ``varying`` names what cannot vary, or the kernel has a parameter of the
            name ``varying``.
        TypeError: the arguments do not fit the kernel's signature.
        CaptureError, TuningFailedError, MixedDevicesError: as ``launch_autotuned``.
    """
    names = (varying,) if isinstance(varying, str) else tuple(varying)
    check_varying(kernel, names)
    elsewhere = None
    if not settings.current().disable:
        elsewhere = placing.other_device(kernel_name(kernel), _names_of(kernel), args, kwargs)
    with contextlib.nullcontext() if elsewhere is None else seam.on_device(elsewhere):
        return FrozenLaunch(kernel, grid, args, kwargs, names)
