"""Data from and for others: arrays of other libraries, and files."""

from __future__ import annotations

import os

from . import _devices, _nabla
from ._dtypes import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from ._devices import Device
    from ._nabla import Tensor


def from_dlpack(
    array: Any, *, device: Device | str | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor from anything that has __dlpack__, or from a capsule of DLPack.

    It shares the memory of the producer, which must not be written to from
    then on, unless that is read-only, not contiguous or not aligned, or
    copy=True: then it is a copy.  With copy=False it shares or fails.  It stays
    on the device of the producer unless `device`, or a default_device around,
    says otherwise.

    >>> nb.from_dlpack(nb.ones(2).__dlpack__())
    Tensor([1. 1.] : f32[2])
    """
    dtype = None
    if _is_bfloat16(array):  # which NumPy does not export
        array, dtype = array.view("uint16"), "bfloat16"
    x: Tensor = _nabla.import_dlpack(array, copy, dtype)
    if device is None and (x is array or _devices.is_unsaid()):
        return x
    there = _devices.number(device)
    if copy is False and there != _nabla.device_of(x):
        raise ValueError(
            f"from_dlpack: a copy is needed from {x.device} to "
            f"{_devices.at(there)}, but copy=False"
        )
    return _nabla.to_device(x, there)


def as_tensor(o: Any) -> Tensor:
    """What ops make of an array whose elements the buffer protocol does not
    know: a copy."""
    if hasattr(o, "__dlpack__") and not _is_numpy(o):
        return from_dlpack(o, copy=True)
    if hasattr(o, "__cuda_array_interface__"):
        return _nabla.import_card_array(o, True)
    import numpy

    a = numpy.asarray(o)
    if _is_bfloat16(a):
        return from_dlpack(a, copy=True)
    native = a.dtype.newbyteorder("=")
    if native.name not in DType.__members__:
        raise TypeError(f"no dtype of nabla holds elements of {a.dtype}")
    return _nabla.ensure_tensor(a.astype(native))


def _is_numpy(o: Any) -> bool:
    return type(o).__module__.partition(".")[0] == "numpy"


def _is_bfloat16(o: Any) -> bool:
    dtype = getattr(o, "dtype", None)
    return _is_numpy(o) and getattr(dtype, "name", "") == "bfloat16"


def save(
    path: str | os.PathLike[str],
    tree: Any,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes the tensors of a tree to a file: .safetensors, .npz, or .npy for
    one tensor.  Their names are the keys and indices that lead to them, with
    dots between.  metadata, texts by name, goes into .safetensors alone.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/w.npz"
    >>> nb.save(path, {"layers": [nb.ones(2), nb.zeros(2)]})
    >>> sorted(nb.load(path))
    ['layers.0', 'layers.1']
    """
    found = list(_named(tree, ""))
    if any(not name for name, _ in found) and _has_names(path):
        raise ValueError(
            f"save: {os.fsdecode(path)} holds tensors by name: a dict or list "
            "of them is needed"
        )
    notes = dict(metadata or {})
    _check_texts(notes)
    _nabla.write_file(
        path,
        [name for name, _ in found],
        [x for _, x in found],
        list(notes),
        list(notes.values()),
    )


def _check_texts(notes: dict[Any, Any]) -> None:
    for key, value in notes.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(
                f"save: metadata is texts by name, but {key!r} is {value!r}"
            )


class Loaded(dict[str, "_nabla.Tensor"]):
    """Tensors by name, and the metadata that was in the file."""

    metadata: dict[str, str]


_nabla.register_pytree_node(Loaded, dict, dict)


def load(
    path: str | os.PathLike[str], device: Device | str | None = None
) -> Any:
    """The tensors of a file by name; of a .npy file the one it has.  What
    save was given as metadata is the attribute `metadata`.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/x.npy"
    >>> nb.save(path, nb.arange(3))
    >>> nb.load(path)
    Tensor([0 1 2] : i64[3])
    """
    there = _devices.number(device)
    tensors, notes = _nabla.read_file(path)
    if there:
        tensors = {k: _nabla.to_device(x, there) for k, x in tensors.items()}
    if _is_npy(path):
        return tensors[""]
    found = Loaded(tensors)
    found.metadata = notes
    return found


def _is_npy(path: str | os.PathLike[str]) -> bool:
    return os.fsdecode(path).endswith(".npy")


def _has_names(path: str | os.PathLike[str]) -> bool:
    return os.fsdecode(path).endswith((".safetensors", ".npz"))


def _named(tree: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    parts = _parts(tree)
    if parts is None:
        yield name, _nabla.ensure_tensor(tree)
        return
    for key, part in parts:
        if not isinstance(key, (str, int)):
            raise TypeError(f"save: {key!r} is not a str or an int")
        yield from _named(part, f"{name}.{key}" if name else str(key))


def _parts(tree: Any) -> Iterable[tuple[Any, Any]] | None:
    """What a node holds, by key or index; None for a leaf.  A module names its
    parts itself."""
    if isinstance(tree, dict):
        return tree.items()
    if hasattr(tree, "state_dict"):
        state: dict[str, Any] = tree.state_dict()
        return state.items()
    children = _nabla.tree_leaves(tree, is_leaf=lambda x: x is not tree)
    if len(children) == 1 and children[0] is tree:
        return None
    return enumerate(children)
