"""Functions over bitmaps and sketches, kept as bytes: unions, made by the libraries of their formats.

The libraries take one value at a time; a call per value is what a union costs.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from importlib import import_module

import pyarrow as pa
import pyroaring

from lsm_engine.base.errors import ErrorKind, InvalidInputError
from lsm_engine.base.record import record
from lsm_engine.merge.aggregators.aggregator import Aggregator, refuse_retracts
from lsm_engine.merge.versions import Computed, Folded, Versions

_HLL_LG_MAX_K = 12
_THETA_LG_K = 12


class Bitmaps(Enum):
    """The formats; the value is the function's name."""

    RBM32 = "rbm32"
    RBM64 = "rbm64"
    HLL = "hll_sketch"
    THETA = "theta_sketch"


@record
class Union(Aggregator):
    """The union of all values. A value that is not of the format is an InvalidInputError."""

    format: Bitmaps

    def fold(self, versions: Versions, name: str) -> Folded:
        """See Aggregator."""
        refuse_retracts(versions, name, self.format.value)
        valid_versions = versions.filtered(versions.valid(name))
        values = valid_versions.column(name).to_pylist()
        unite = _UNIONS[self.format]
        sketches: list[bytes | None] = []
        for group, (start, stop) in enumerate(
            zip(
                valid_versions.offsets[:-1].tolist(),
                valid_versions.offsets[1:].tolist(),
                strict=True,
            )
        ):
            try:
                sketches.append(unite(values[start:stop]) if stop > start else None)
            except (ValueError, RuntimeError) as cause:
                raise InvalidInputError(
                    f"column {name!r} holds bytes that are no {self.format.value}",
                    kind=ErrorKind.INVALID_ROWS,
                    column=name,
                    key=valid_versions.key(group),
                ) from cause
        return Computed(values=pa.array(sketches, versions.schema.field(name).type))


def _united_32(values: Sequence[bytes]) -> bytes:
    united = pyroaring.BitMap.deserialize(values[0])
    for value in values[1:]:
        united |= pyroaring.BitMap.deserialize(value)
    return bytes(united.serialize())


def _united_64(values: Sequence[bytes]) -> bytes:
    united = pyroaring.BitMap64.deserialize(values[0])
    for value in values[1:]:
        united |= pyroaring.BitMap64.deserialize(value)
    return bytes(united.serialize())


def _united_hll(values: Sequence[bytes]) -> bytes:
    datasketches = import_module("datasketches")
    union = datasketches.hll_union(_HLL_LG_MAX_K)
    for value in values:
        union.update(datasketches.hll_sketch.deserialize(value))
    return bytes(union.get_result(datasketches.tgt_hll_type.HLL_4).serialize_compact())


def _united_theta(values: Sequence[bytes]) -> bytes:
    datasketches = import_module("datasketches")
    union = datasketches.theta_union(_THETA_LG_K)
    for value in values:
        union.update(datasketches.compact_theta_sketch.deserialize(value))
    return bytes(union.get_result().serialize())


_UNIONS: dict[Bitmaps, Callable[[Sequence[bytes]], bytes]] = {
    Bitmaps.RBM32: _united_32,
    Bitmaps.RBM64: _united_64,
    Bitmaps.HLL: _united_hll,
    Bitmaps.THETA: _united_theta,
}
