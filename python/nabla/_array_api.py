"""What the Python array API standard asks a namespace to tell about itself."""

from __future__ import annotations

from . import _devices
from ._dtypes import DType, isdtype

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._devices import Device


class Info:
    """nabla.__array_namespace_info__()"""

    def capabilities(self) -> dict[str, Any]:
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": 16,
        }

    def default_device(self) -> Device:
        return _devices.resolve(None)

    def default_dtypes(
        self, *, device: Device | str | None = None
    ) -> dict[str, DType]:
        _devices.resolve(device)
        return {
            "real floating": _devices.defaults()[0],
            "integral": DType.int64,
            "indexing": DType.int64,
        }

    def dtypes(
        self, *, device: Device | str | None = None, kind: Any = None
    ) -> dict[str, DType]:
        _devices.resolve(device)
        return {
            d.name: d for d in DType if kind is None or isdtype(d, kind)
        }

    def devices(self) -> list[Device]:
        return _devices.devices()


def __array_namespace_info__() -> Info:  # noqa: N807
    """Devices, dtypes and capabilities, as the array API standard asks."""
    return Info()
