"""Functions as machine code.  A call whose signature is known does not come
here: it finds its executable in the extension."""

from __future__ import annotations

import sys
import time
import warnings
from functools import update_wrapper
from operator import index
from types import MethodType

from .. import _nabla
from .._nabla import CompiledFunction
from ._record import name_of, paths, type_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from .._nabla import Executable, PyTreeDef, Tensor
    from ._report import (
        CompilationStats,
        Cost,
        Explanation,
        MemoryPlan,
        Verification,
    )

__all__ = [
    "CompilationStats",
    "CompiledFunction",
    "compile",
    "explain",
    "jit",
    "verify",
]

_INPUT, _STEP, _STATIC, _ARRAY = range(4)


class _Options:
    """The arguments of compile besides the function, checked."""

    def __init__(
        self,
        fn: Callable[..., Any],
        fullgraph: bool = False,
        max_cache_size: int = 64,
        dynamic_dims: Any = None,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
        donate_argnums: int | Sequence[int] = (),
        max_collective_bytes: int | None = None,
    ) -> None:
        self.fullgraph = bool(fullgraph)
        self.max_cache_size = index(max_cache_size)
        if not 0 < self.max_cache_size < 2**31:
            raise ValueError(
                f"compile: max_cache_size is {max_cache_size}, not positive"
            )
        self.names, self.open = _parameters(fn)
        places = self._places("static_argnums", static_argnums)
        given = _texts("static_argnames", static_argnames)
        self._known(given)
        self.static: set[int | str] = {*places, *given}
        self.donated: set[int | str] = set(
            self._places("donate_argnums", donate_argnums)
        )
        self._both_ways(self.static)
        self._both_ways(self.donated)
        if self.static & self.donated:
            raise ValueError("compile: an argument is both static and donated")
        self.dynamic = _dynamic(dynamic_dims)
        self.budget = _budget(max_collective_bytes)

    def _places(self, what: str, given: int | Sequence[int]) -> list[int]:
        many: Any = given if _is_many(given) else (given,)
        try:
            found = [index(i) for i in many]
        except TypeError:
            raise TypeError(
                f"compile: {what} is an int or a sequence of ints, not "
                f"{given!r}"
            ) from None
        n = len(self.names)
        for k, i in enumerate(found):
            if i < -n or (i >= n and not self.open):
                raise ValueError(
                    f"compile: {what} has {i}, the function takes {n} "
                    "positional arguments"
                )
            found[k] = i + n if i < 0 else i
        return found

    def _known(self, given: Iterable[str]) -> None:
        for name in given:
            if not self.open and name not in self.names:
                raise ValueError(
                    f"compile: static_argnames has {name!r}, the function has "
                    "no such argument"
                )

    def _both_ways(self, chosen: set[int | str]) -> None:
        """An argument is meant by place and by name, however it is given."""
        for i, name in enumerate(self.names):
            if i in chosen or name in chosen:
                chosen.update((i, name))


def _is_many(given: object) -> bool:
    return isinstance(given, (list, tuple, set, frozenset, range))


def _texts(what: str, given: str | Sequence[str]) -> list[str]:
    found = list(given) if _is_many(given) else [given]
    if not all(isinstance(name, str) for name in found):
        raise TypeError(f"compile: {what} is a str or a sequence of them")
    return found  # type: ignore[return-value]


def _parameters(fn: Callable[..., Any]) -> tuple[list[str], bool]:
    """Names of the positional arguments of a function, and whether there may
    be more or others."""
    import inspect

    try:
        found = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return [], True
    by_place = (inspect.Parameter.POSITIONAL_ONLY,)
    by_place += (inspect.Parameter.POSITIONAL_OR_KEYWORD,)  # type: ignore[assignment]
    names = [p.name for p in found if p.kind in by_place]
    return names, len(names) < len(found)


def _dynamic(dims: Any) -> dict[int, dict[int, str]]:
    """dynamic_dims, checked: {tensor leaf: {axis: name}}"""
    if dims is None:
        return {}
    wanted = "compile: dynamic_dims is {tensor leaf: {axis: name}}"
    if not isinstance(dims, dict):
        raise TypeError(f"{wanted}, not {dims!r}")
    for leaf, axes in dims.items():
        if not isinstance(leaf, int) or not isinstance(axes, dict):
            raise TypeError(f"{wanted}, not {dims!r}")
        for axis, name in axes.items():
            if not isinstance(axis, int) or not isinstance(name, str):
                raise TypeError(f"{wanted}, not {dims!r}")
    return {leaf: dict(axes) for leaf, axes in dims.items()}


def _budget(most: int | None) -> int:
    """max_collective_bytes as the extension takes it: 0 is any number, a
    negative one none at all."""
    if most is None:
        return 0
    if index(most) < 0:
        raise ValueError(f"compile: max_collective_bytes is {most}, below zero")
    return index(most) or -1


def _is_state(x: object) -> bool:
    """Whether it is the state of an optimiser that counts its steps."""
    if type(x) is not dict or "step" not in x:
        return False
    step = x["step"]
    if isinstance(step, _nabla.Tensor):
        counts = step.shape == () and step.dtype.name == "float32"
    else:
        counts = isinstance(step, (int, float)) and not isinstance(step, bool)
    return counts and ({"m", "v"} <= x.keys() or "momentum_buffers" in x)


def _step_places(tree: Any) -> set[int]:
    """Which leaves of a tree are counts of steps."""
    at, found = 0, set()
    for x in _nabla.tree_leaves(tree, is_leaf=_is_state):
        if not _is_state(x):
            at += 1
            continue
        before = {key: x[key] for key in sorted(x) if key < "step"}
        found.add(at + len(_nabla.tree_leaves(before)))
        at += len(_nabla.tree_leaves(x))
    return found


def _step_beside(leaves: list[Any], step: float) -> Tensor:
    """A count of steps as a tensor, where the tensors of the state are."""
    x = _nabla.constant(float(step), "float32")
    tensors = (y for y in leaves if isinstance(y, _nabla.Tensor))
    return _nabla.to_device(x, _nabla.device_of(next(tensors, x)))


class _Call:
    """A call taken apart: its arguments by structure and leaf.

    rows   what the extension is told of each leaf: (kind, value, donated)
    """

    def __init__(
        self,
        own: CompiledFunction,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> None:
        self.own, self.options = own, _options(own)
        self.n = len(args)
        self.names = tuple(sorted(kwargs))
        self.defs: list[PyTreeDef] = []
        self.leaves: list[Any] = []
        self.rows: list[tuple[int, Any, bool]] = []
        self._whole = [*args, *(kwargs[name] for name in self.names)]
        for key, tree in zip(self._keys(), self._whole, strict=True):
            self._take(key, tree)

    def _keys(self) -> list[int | str]:
        return [*range(self.n), *self.names]

    def _take(self, key: int | str, tree: Any) -> None:
        leaves, structure = _nabla.tree_flatten(tree)
        self.defs.append(structure)
        fixed = key in self.options.static
        donated = key in self.options.donated
        steps = set() if fixed else _step_places(tree)
        for i, x in enumerate(leaves):
            kind, value = _STATIC, x
            if fixed:
                self._check_hash(x)
            elif isinstance(x, _nabla.Tensor):
                kind = _STEP if i in steps else _INPUT
            elif i in steps:
                kind, value = _STEP, _step_beside(leaves, x)
            elif _nabla.is_array(x):
                kind, value = self._placed(_nabla.ensure_tensor(x))
            else:
                self._check_hash(x)
            self.leaves.append(value)
            self.rows.append((kind, value, donated))

    def _placed(self, x: Tensor) -> tuple[int, Tensor]:
        """An array, with the first tensor that is on a card; if none is it
        stays on the default device, which other calls need not have."""
        others = _nabla.tree_leaves(self._whole)
        tensors = (y for y in others if isinstance(y, _nabla.Tensor))
        card = next(filter(None, map(_nabla.device_of, tensors)), 0)
        if not card:
            return _INPUT, x
        return _ARRAY, _nabla.to_device(x, card) if x.ndim else x

    def _check_hash(self, x: Any) -> None:
        try:
            hash(x)
        except TypeError:
            where = self.where()[len(self.leaves)]
            raise TypeError(
                f"compile: {where} is a {type(x).__name__}, which is neither "
                "a tensor nor hashable: pass a tensor, or a value that can be "
                "compared and hashed"
            ) from None

    def where(self) -> list[str]:
        """What messages call the leaves."""
        names = self.options.names
        return [
            (
                key
                if isinstance(key, str)
                else names[key]
                if key < len(names)
                else f"argument {key}"
            )
            + path
            for key, tree in zip(self._keys(), self._whole, strict=True)
            for path in paths(tree)
        ]

    def texts(self) -> dict[str, str]:
        """The leaves as a signature tells them apart."""
        return {
            where: repr(x) if kind == _STATIC else type_text(x)
            for where, (kind, x, _) in zip(self.where(), self.rows, strict=True)
        }

    @property
    def tensors(self) -> list[Tensor]:
        return [x for kind, x, _ in self.rows if kind != _STATIC]

    def donated(self) -> list[int]:
        """Which of the tensors are."""
        inputs = [row for row in self.rows if row[0] != _STATIC]
        return [i for i, row in enumerate(inputs) if row[2]]

    def check_sizes(self) -> None:
        """Sizes of one name are equal."""
        x, size = self.tensors, dict[str, int]()
        for leaf, axes in self.options.dynamic.items():
            if not 0 <= leaf < len(x):
                raise ValueError(
                    f"compile: dynamic_dims names tensor leaf {leaf}, the call "
                    f"has {len(x)}"
                )
            for axis, name in axes.items():
                if not -x[leaf].ndim <= axis < x[leaf].ndim:
                    raise ValueError(
                        f"compile: dynamic_dims names axis {axis} of tensor "
                        f"leaf {leaf}, which is {type_text(x[leaf])}"
                    )
                found = x[leaf].shape[axis]
                if size.setdefault(name, found) != found:
                    raise ValueError(
                        f"compile: dimension {name!r} is {size[name]} and, in "
                        f"tensor leaf {leaf}, {found}"
                    )

    def run(self, leaves: Sequence[Any]) -> Any:
        """The function itself, with these leaves."""
        trees, at = [], 0
        for structure in self.defs:
            n = structure.num_leaves
            trees.append(structure.unflatten(leaves[at : at + n]))
            at += n
        named = dict(zip(self.names, trees[self.n :], strict=True))
        return self.own._fn(*trees[: self.n], **named)

    def body(self, inside: list[Tensor]) -> list[Tensor]:
        """The function of its tensors alone, to be recorded."""
        fresh = iter(inside)
        leaves = [
            x if kind == _STATIC else next(fresh) for kind, x, _ in self.rows
        ]
        out, structure = _nabla.tree_flatten(self.run(leaves))
        tensors = [x for x in out if isinstance(x, _nabla.Tensor)]
        count = iter(range(len(tensors)))
        results = [
            (next(count), None) if isinstance(x, _nabla.Tensor) else (-1, x)
            for x in out
        ]
        before = self.__dict__.setdefault("outcome", (structure, results))
        if before != (structure, results):
            raise ValueError(
                f"compile: {name_of(self.own._fn)} returns {results} at one "
                f"size and {before[1]} at another: what is not a tensor is "
                "part of the program"
            )
        return tensors

    def dims(self) -> list[tuple[int, int, str]]:
        """The dims that are open, unless their sizes turned out to matter."""
        if _state(self.own)["fixed"]:
            return []
        return [
            (leaf, axis, name)
            for leaf, axes in self.options.dynamic.items()
            for axis, name in axes.items()
        ]

    def forget(self) -> None:
        """Lets go of the tensors; the function can still be recorded."""
        self.rows = [
            (kind, x if kind == _STATIC else None, donated)
            for kind, x, donated in self.rows
        ]
        self.leaves = self._whole = []

    def signature(self, executable: Executable | None) -> tuple[Any, ...]:
        """What the extension is told of all this."""
        structure, results = self.defs, []
        if executable is not None:
            structure, results = self.outcome  # type: ignore[attr-defined]
        head = (self.n, self.names, self.defs, self.rows)
        return *head, executable, structure, results, self.dims()


def _options(own: CompiledFunction) -> _Options:
    found: _Options = own.__dict__["_options"]
    return found


def _state(own: CompiledFunction) -> dict[str, Any]:
    """What is remembered of earlier signatures, for explain."""
    found: dict[str, Any] = own.__dict__.setdefault(
        "_seen", {"last": None, "retraces": [], "fixed": ""}
    )
    return found


def _remember(own: CompiledFunction, signature: _Call) -> None:
    """Notes what a signature has that the last one had not."""
    state, texts = _state(own), signature.texts()
    last, state["last"] = state["last"], texts
    if last is None:
        return
    for where in [*texts, *last]:
        now, then = texts.get(where, "nothing"), last.get(where, "nothing")
        if now != then:
            break
    else:
        where, now, then = "the structure", "another", "that of the last call"
    state["retraces"].append(f"{where}: {now} after {then}")
    del state["retraces"][:-32]


# What the extension calls.


def set_up(self: CompiledFunction, fn: Any, **options: Any) -> None:
    """The rest of CompiledFunction(fn, ...)."""
    if not callable(fn):
        raise TypeError(
            f"compile: a function is compiled, not a {type(fn).__name__}"
        )
    checked = _Options(fn, **options)
    self._set(fn, checked.max_cache_size)
    update_wrapper(self, fn)
    self.__dict__["_options"] = checked


def bind(self: CompiledFunction, instance: object) -> MethodType:
    return MethodType(self, instance)


def plain(
    self: CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The function itself, where something around looks at its ops."""
    one = _Call(self, args, kwargs)
    return one.run(one.leaves)


def fall_back(
    self: CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call of a signature that cannot be compiled."""
    one = _Call(self, args, kwargs)
    value = one.run(one.leaves)
    for _, x, donated in one.rows:
        if donated:
            _nabla.donate(x)
    return value


def miss(
    self: CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The parts of a new signature; or (value,) where the function is not
    compiled at all."""
    one = _Call(self, args, kwargs)
    if _nabla.is_watched(one.tensors):
        return (one.run(one.leaves),)
    one.check_sizes()
    start, counted = time.perf_counter(), (1, 0)
    try:
        executable = _compiled(one)
        if executable is None:
            counted = 0, 1
    finally:
        self._count(*counted, (time.perf_counter() - start) * 1e3)
    _remember(self, one)
    signature = one.signature(executable)
    one.forget()
    return signature


def _lowered(one: _Call) -> Executable | None:
    """The program of a call; None, and a warning, if there can be none."""
    fn = one.own._fn

    def body(inside: list[Tensor]) -> list[Tensor]:
        try:
            return one.body(inside)
        except Exception as error:
            error.add_note(
                f"inside compile of {name_of(fn)}, at {_place(error)}"
            )
            raise

    try:
        found = _nabla.Executable(body, one.tensors, one.donated(), one.dims())
    except Exception as error:
        if not _nabla.value_asked():
            raise
        said = (
            f"{_place(error)} asks for the value of a tensor while "
            f"{name_of(fn)} is compiled"
        )
        if one.options.fullgraph:
            raise RuntimeError(
                f"compile: {said}, which fullgraph=True forbids: use nb.where, "
                "nb.cond, nb.switch or nb.while_loop on it, or pass it as a "
                "static argument"
            ) from error
        _warn(f"compile: {said}: this signature runs uncompiled")
        return None
    if fixed := found.fixed():
        _state(one.own)["fixed"] = fixed
    return found


def _load(one: _Call, executable: Executable) -> Executable:
    executable.budget(one.options.budget)
    executable.load()
    if trouble := executable.trouble():
        _warn_once(
            "code",
            f"{trouble}; compiled functions run op by op, which is slower",
        )
    if trouble := _nabla.cache_trouble():
        _warn_once(
            "cache", f"{trouble}; code is compiled anew in every process"
        )
    return executable


def _compiled(one: _Call) -> Executable | None:
    """The executable of a call; None, and a warning, if it cannot be."""
    found = _lowered(one)
    return None if found is None else _load(one, found)


def _place(error: BaseException) -> str:
    """The line of the user's code that raised."""
    at, found = error.__traceback__, "a line"
    home = __file__.removesuffix("transforms/compile.py")
    while at:
        file = at.tb_frame.f_code.co_filename
        if not file.startswith(home):
            found = f"{file}:{at.tb_lineno}"
        at = at.tb_next
    return found


def _warn(text: str) -> None:
    """At the line that called the compiled function."""
    level, frame = 1, sys._getframe()
    home = __file__.removesuffix("transforms/compile.py")
    while frame.f_back and frame.f_code.co_filename.startswith(home):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)


_warned: set[str] = set()


def _warn_once(about: str, text: str) -> None:
    if about not in _warned:
        _warned.add(about)
        _warn(text)


# Looking inside.


class Lowered:
    """A function recorded for arguments of certain types: no machine code is
    made of it, and nothing runs, before compile()."""

    def __init__(self, one: _Call) -> None:
        executable = _lowered(one)
        if executable is None:
            raise RuntimeError(
                f"compile: {name_of(one.own._fn)} asks for values, there is "
                "no program of it"
            )
        self._one, self._executable = one, executable

    def ir(self, stage: str | None = None) -> str:
        """The program: "graph", as it was recorded, or "plan"."""
        return self._executable.text(stage)

    def memory(self) -> MemoryPlan:
        """Bytes that a run needs."""
        return _plan(self._executable)

    def cost(self) -> Cost:
        """Work that a run does."""
        from ._report import Cost

        flops, steps, loops = self._executable.cost()
        plan = self.memory()
        return Cost(flops, plan.arguments + plan.results, steps, loops)

    def explain(self) -> Explanation:
        """What is fused, what is kept in memory."""
        return _explanation(self._executable, _state(self._one.own))

    def compile(self) -> CompiledFunction:
        """The compiled function, which knows this signature now."""
        own = self._one.own
        made = _load(self._one, self._executable)
        own._add(*self._one.signature(made))
        self._one.forget()
        return own


def _plan(executable: Executable) -> MemoryPlan:
    from ._report import MemoryPlan

    lines = executable.text("memory").splitlines()
    rows = [line.split(" ", 1) for line in lines]
    buffers = [(what, int(size)) for size, what in rows]
    return MemoryPlan(*executable.memory(), buffers)


def _explanation(executable: Executable, state: Any) -> Explanation:
    from ._report import Collective, Explanation

    lines = executable.text("plan").splitlines()
    table, rows = executable.explain()
    collectives = [Collective(*row) for row in rows]
    return Explanation(
        kernels=[line for line in lines if line.startswith("step ")],
        peak_bytes=executable.memory()[0],
        collectives=collectives,
        total_bytes=sum(c.bytes * c.times for c in collectives),
        table=table,
        retraces=list(state["retraces"]),
        uncompiled=executable.trouble(),
        fixed=state["fixed"],
        device=next((x[3:] for x in lines if x.startswith("on ")), "cpu"),
    )


def _latest(self: CompiledFunction) -> Executable:
    found = self._latest()
    if found is None:
        raise RuntimeError(
            f"compile: {name_of(self._fn)} runs uncompiled for the arguments "
            "of its last call"
        )
    return found


def _stats(self: CompiledFunction) -> CompilationStats:
    """Hits, misses, fallbacks, times."""
    from ._report import CompilationStats

    return CompilationStats(*self._counts())


def _lower(self: CompiledFunction, *args: Any, **kwargs: Any) -> Lowered:
    """The function recorded for these arguments, without running it."""
    one = _Call(self, args, kwargs)
    one.check_sizes()
    return Lowered(one)


def _ir(self: CompiledFunction, stage: str | None = None) -> str:
    """The program of the signature used last: "graph" or "plan"."""
    return _latest(self).text(stage)


def _memory(self: CompiledFunction) -> MemoryPlan:
    """Bytes that the signature used last needs."""
    return _plan(_latest(self))


def _explain(self: CompiledFunction) -> Explanation:
    """How the signature used last runs, and why there are others."""
    return _explanation(_latest(self), _state(self))


def _repr(self: CompiledFunction) -> str:
    return f"<CompiledFunction {name_of(self._fn)}>"


def _attach() -> None:
    """The members of CompiledFunction that need no speed."""
    for name, f in {
        "lower": _lower,
        "ir": _ir,
        "memory": _memory,
        "explain": _explain,
        "__repr__": _repr,
    }.items():
        f.__name__, f.__qualname__ = name, f"CompiledFunction.{name}"
        setattr(CompiledFunction, name, f)
    CompiledFunction.stats = property(_stats)  # type: ignore[assignment,method-assign]


_nabla.set_helpers(sys.modules[__name__])
_attach()


def __getattr__(name: str) -> object:
    if name == "CompilationStats":
        from ._report import CompilationStats

        return CompilationStats
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    max_cache_size: int = 64,
    dynamic_dims: dict[int, dict[int, str]] | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    max_collective_bytes: int | None = None,
) -> Any:
    """The function as machine code, made once for every combination of types
    of its arguments.

    Tensors and NumPy arrays among the leaves of the arguments are inputs; all
    other leaves, and the arguments that are named static, are part of the
    program and compared by value.

    fullgraph        asking for a value inside is an error, not a warning
    max_cache_size   programs that are kept; the least recently used goes
    dynamic_dims     {tensor leaf: {axis: name}}: one program for all sizes
                     along these; equal names are equal sizes
    donate_argnums   arguments whose memory the results may take
    max_collective_bytes   that a device may receive from others in a run;
                     more is an error that names the dearest collective

    >>> step = nb.compile(lambda w, g: w - 0.1 * g)
    >>> step(nb.constant(1.0), nb.constant(2.0))
    Tensor(0.8 : f32[])
    >>> step.stats
    CompilationStats(hits=0, misses=1, fallbacks=0, hit_rate=0.0%)
    """
    options: dict[str, Any] = {
        "fullgraph": fullgraph,
        "max_cache_size": max_cache_size,
        "dynamic_dims": dynamic_dims,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "max_collective_bytes": max_collective_bytes,
    }
    if fn is None:
        return lambda f: CompiledFunction(f, **options)
    return CompiledFunction(fn, **options)


jit = compile


def explain(fn: Callable[..., Any]) -> Callable[..., Explanation]:
    """A function that says how fn would run on its arguments once it is
    compiled, without running it: its loops, its memory, and over a mesh every
    collective, with bytes, reason, bound, and what would be cheaper.

    >>> len(nb.explain(lambda x: nb.exp(x) * 2)(nb.ones(4)).kernels)
    1
    >>> mesh = nb.DeviceMesh((2, 4), ("dp", "tp"))
    >>> x = nb.shard(nb.ones((32, 128)), mesh, nb.P("dp", "tp"))
    >>> w = nb.shard(nb.ones((128, 256)), mesh, nb.P(None, "tp"))
    >>> [c] = nb.explain(lambda x, w: nb.relu(x @ w))(x, w).collectives
    >>> c.kind, c.axes, c.bytes, c.reason
    ('all_gather', ('tp',), 6144, 'tp goes to n (6144), not to k (36864)')
    """
    own = fn if isinstance(fn, CompiledFunction) else CompiledFunction(fn)

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        found: Explanation = own.lower(*args, **kwargs).explain()
        return found

    return explained


def verify(
    fn: Callable[..., Any], tolerance: float | None = None
) -> Callable[..., Verification]:
    """A function that runs fn on its arguments over their devices and without
    them, op by op: RuntimeError names the first op that gives another value, by
    more than tolerance times its greatest element.  None: by more than orders
    of summation may make.

    >>> mesh = nb.DeviceMesh((4,), ("dp",))
    >>> x = nb.shard(nb.ones((8, 3)), mesh, nb.P("dp"))
    >>> nb.verify(lambda x: nb.sum(x * 2))(x)
    Verification(compared=4, error=0.0)
    """
    own = fn if isinstance(fn, CompiledFunction) else CompiledFunction(fn)
    if tolerance is not None and not tolerance > 0:
        raise ValueError(
            f"verify: a tolerance of {tolerance} is not above zero"
        )

    def verified(*args: Any, **kwargs: Any) -> Verification:
        from ._report import Verification

        one = _Call(own, args, kwargs)
        found = _nabla.verify(one.body, one.tensors, tolerance or 0.0)
        return Verification(*found)

    return verified
