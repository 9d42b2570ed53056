"""Devices, and the defaults of a context: device and floating dtype.  Defaults
are per contextvars context, so threads and tasks do not see each other's."""

from __future__ import annotations

import os
import warnings
from contextvars import ContextVar
from functools import cache
from operator import index

from . import _nabla
from ._dtypes import DType, isdtype

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token
    from typing import Any

    from ._nabla import Tensor


class Device:
    """A place for data: a kind, "cpu" or "gpu", and a number."""

    __slots__ = ("id", "type")
    type: str
    id: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return (self.type, self.id) == (other.type, other.id)

    def __hash__(self) -> int:
        return hash((self.type, self.id))

    def __repr__(self) -> str:
        return f"Device(type={self.type},id={self.id})"


def _checked(who: str, id: Any) -> int:
    """The number of a device."""
    try:
        return index(id)
    except TypeError:
        raise TypeError(
            f"{who}: the number of a device is an int, not {id!r}"
        ) from None


class CPU(Device):
    """The processor of this machine."""

    __slots__ = ()

    def __init__(self, id: int = -1) -> None:
        self.type, self.id = "cpu", max(_checked("CPU", id), 0)


class Accelerator(Device):
    """A graphics processor by its number."""

    __slots__ = ()

    def __init__(self, id: int = 0) -> None:
        self.type, self.id = "gpu", _checked("Accelerator", id)


_HOST = CPU()
_KINDS = {"cpu": CPU, "gpu": Accelerator, "cuda": Accelerator}


def devices() -> list[Device]:
    """All devices that are present: the CPU, then the cards.  Asking opens the
    driver of the cards, if there is one."""
    return [_HOST, *_cards(_nabla.devices()[0] - 1)]


@cache
def _cards(n: int) -> list[Device]:
    return [Accelerator(id) for id in range(n)]


def _numbers(device: Device | str | None) -> list[int]:
    """The engine's numbers of a device, or of all."""
    if device is None:
        return list(range(_nabla.devices()[0]))
    return [number(device)]


def synchronize(device: Device | str | None = None) -> None:
    """Waits until a device has done all that it was given to do; None: all
    devices.  What failed there is raised here at the latest.

    >>> nb.synchronize()
    """
    for n in _numbers(device):
        _nabla.device_wait(n)


def memory_stats(device: Device | str | None = None) -> dict[str, int]:
    """Bytes of a device, by default of the first card: in use by tensors and
    programs now (`used`), at most so far or since `reset_peak_memory` (`most`),
    kept by the process for later use (`kept`), and all that it has (`all`)."""
    n = number(Accelerator() if device is None else device)
    counts = _nabla.device_memory(n)
    return dict(zip(("used", "most", "kept", "all"), counts, strict=True))


def reset_peak_memory(device: Device | str | None = None) -> None:
    """From now on `most` of `memory_stats` is counted anew; None: of all
    devices.

    >>> nb.reset_peak_memory("cpu")
    >>> x = nb.arange(2000.0, device="cpu").realize()
    >>> nb.memory_stats("cpu")["most"] >= 8000
    True
    """
    for n in _numbers(device):
        _nabla.device_peak_reset(n)


def empty_cache(device: Device | str | None = None) -> None:
    """Gives memory back that is kept for later use; None: of all devices.

    >>> nb.empty_cache()
    """
    for n in _numbers(device):
        _nabla.device_trim(n)


def at(number: int) -> Device:
    """The device that the engine numbers so."""
    return _cards(number)[-1] if number else _HOST


def is_unsaid() -> bool:
    """Whether nobody has said what the default device is."""
    return _device.get() is None and _wanted == _HOST


def number(device: Device | str | None) -> int:
    """The engine's number of a device that is present."""
    found = resolve(device)
    return found.id + 1 if found.type == "gpu" else 0


def parse(device: Device | str) -> Device:
    """A device, or the name of one, as a device; it may be absent."""
    if isinstance(device, Device):
        return device
    if not isinstance(device, str):
        raise TypeError(
            "a device is a Device or a string, not "
            + type(device).__name__
        )
    kind, colon, number = device.partition(":")
    if kind not in _KINDS or (colon and not number.isdecimal()):
        raise ValueError(
            f"unknown device {device!r}: devices are 'cpu', 'gpu', 'cuda', "
            "with a number after a colon or without"
        )
    return _KINDS[kind](int(number or 0))


def resolve(device: Device | str | None) -> Device:
    """A device that is present; None is the default one."""
    if device is None:
        return _device.get() or _first()
    found = parse(device)
    if why := _absence(found):
        raise RuntimeError(f"{found} is not present: {why}")
    return found


def _absence(device: Device) -> str:
    """Why a device is not present; "" if it is."""
    if device == _HOST:
        return ""
    if device.type == "cpu":
        return "there is one CPU, number 0"
    n, why = _nabla.devices()
    if 0 <= device.id < n - 1:
        return ""
    return why or f"there are {n - 1} cards, numbered from 0"


def _preferred(device: Device | str) -> Device:
    """The device if it is present, else the CPU, with a warning."""
    found = parse(device)
    why = _absence(found)
    if not why:
        if found.type == "gpu":
            _ask_from_now_on()
        return found
    warnings.warn(
        f"{found} is not present, work stays on the CPU: {why}",
        RuntimeWarning,
        stacklevel=3,
    )
    return _HOST


@cache
def _ask_from_now_on() -> None:
    """The engine asks for the default device, which need not be the CPU."""
    _nabla.ask_default_device(lambda: number(None))


_wanted = parse(os.environ.get("NABLA_DEFAULT_DEVICE") or "cpu")
if _wanted.type == "gpu":
    _ask_from_now_on()


@cache
def _first() -> Device:
    """The default device of the process, looked for when it is first used."""
    return _preferred(_wanted)


_dtype: ContextVar[DType] = ContextVar("dtype", default=DType.float32)
_device: ContextVar[Device | None] = ContextVar("device", default=None)


@cache
def _ask_for_dtype() -> None:
    """The engine asks for the default dtype, which need not be float32."""
    _nabla.ask_default(_dtype.get)


class Setting:
    """A context manager that gives context variables other values inside."""

    __slots__ = ("_tokens", "_values")

    def __init__(self, *values: tuple[ContextVar[Any], Any]) -> None:
        self._values = values
        self._tokens: list[Token[Any]] = []

    def __enter__(self) -> None:
        self._tokens += [var.set(value) for var, value in self._values]

    def __exit__(self, *error: object) -> None:
        for var, _ in reversed(self._values):
            var.reset(self._tokens.pop())


def _floating(dtype: DType | str | None) -> DType:
    found = _nabla.as_dtype(dtype)
    if found is None or not isdtype(found, "real floating"):
        raise TypeError(f"a default dtype must be floating, not {found}")
    _ask_for_dtype()
    return found


def default_dtype(dtype: DType | str) -> Setting:
    """Within it floating numbers and factories have this dtype.

    >>> with nb.default_dtype("float64"):
    ...     nb.zeros(2).dtype
    DType.float64
    """
    return Setting((_dtype, _floating(dtype)))


def made(
    device: Device | str | None,
    make: Callable[..., Tensor],
    *args: Any,
    **kw: Any,
) -> Tensor:
    """What `make` makes, on that device."""
    if device is None and is_unsaid():
        return make(*args, **kw)
    there = number(device)
    if there:
        _ask_from_now_on()
    with Setting((_device, at(there))):
        x = make(*args, **kw)
    return _nabla.to_device(x, there)


def default_device(device: Device | str) -> Setting:
    """Within it new tensors live on this device, if it is present."""
    return Setting((_device, _preferred(device)))


def defaults_like(tensor_or_type: Tensor | TensorType) -> Setting:
    """The dtype and device of a tensor, or of a type, as defaults."""
    if not isinstance(tensor_or_type, (_nabla.Tensor, TensorType)):
        raise TypeError("defaults_like takes a Tensor or a TensorType")
    return Setting(
        (_dtype, _floating(tensor_or_type.dtype)),
        (_device, _preferred(tensor_or_type.device)),
    )


def defaults(
    dtype: DType | str | None = None, device: Device | str | None = None
) -> tuple[DType, Device]:
    """Dtype and device, the current defaults for what is None.

    >>> nb.defaults("float16")
    (DType.float16, Device(type=cpu,id=0))
    """
    return _nabla.as_dtype(dtype) or _dtype.get(), resolve(device)


class TensorType:
    """What a tensor is like: shape, dtype and device.

    >>> nb.TensorType((2, 3), nb.float32) == nb.zeros((2, 3)).type
    True
    """

    __slots__ = ("device", "dtype", "shape")

    def __init__(
        self,
        shape: Any,
        dtype: DType | str,
        device: Device | str | None = None,
    ) -> None:
        sizes = shape if hasattr(shape, "__iter__") else (shape,)
        self.shape: tuple[int, ...] = tuple(sizes)
        self.dtype: DType = DType.from_numpy(dtype)
        self.device: Device = (
            resolve(None) if device is None else parse(device)
        )

    @property
    def rank(self) -> int:
        return len(self.shape)

    ndim = rank

    def _key(self) -> tuple[object, ...]:
        return self.shape, self.dtype, self.device

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorType):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"TensorType(shape={self.shape}, dtype={self.dtype}, "
            f"device={self.device})"
        )
