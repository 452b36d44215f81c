"""Unions of bitmaps and sketches, against the libraries that define their bytes."""

import datasketches
import pyroaring
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.base.errors import InvalidInputError
from tests.unit.merge.bracketing import cuts, replayed, schema_of
from tests.unit.merge.test_aggregators import checked, histories


def merged(function, values):
    texts = {"merge-engine": "aggregation", "fields.c.aggregate-function": function}
    rows = [{"k": 1, "c": value, "kind": "+I"} for value in values]
    schema = schema_of([("c", "BYTES")], texts)
    whole = replayed(schema, rows, [])[1]["c"]
    cut = replayed(schema, rows, [(1, 0), (1, 2), (1, 1)])[1]["c"]
    return whole, cut


@pytest.mark.parametrize(
    ("function", "kind"), [("rbm32", pyroaring.BitMap), ("rbm64", pyroaring.BitMap64)]
)
def test_bitmaps(function, kind):
    parts = [{1, 2}, {2, 70_000}, set(), {5}]
    values = [kind(part).serialize() for part in parts]
    whole, cut = merged(function, [values[0], None, *values[1:]])
    assert set(kind.deserialize(whole)) == set(kind.deserialize(cut)) == set().union(*parts)
    assert merged(function, [None, None]) == (None, None)


def hll(numbers):
    sketch = datasketches.hll_sketch(12)
    for number in numbers:
        sketch.update(number)
    return sketch.serialize_compact()


def theta(numbers):
    sketch = datasketches.update_theta_sketch(12)
    for number in numbers:
        sketch.update(number)
    return sketch.compact().serialize()


@pytest.mark.parametrize(
    ("function", "made", "read"),
    [
        ("hll_sketch", hll, datasketches.hll_sketch.deserialize),
        ("theta_sketch", theta, datasketches.compact_theta_sketch.deserialize),
    ],
)
def test_sketches(function, made, read):
    values = [made(range(100)), made(range(50, 300)), made([1_000])]
    for answer in merged(function, values):
        assert read(answer).get_estimate() == pytest.approx(301, rel=0.03)


def estimate_of(sketch):
    return round(sketch.get_estimate(), 3)


FORMATS = {
    "rbm32": (lambda some: pyroaring.BitMap(some).serialize(),
              lambda stored: frozenset(pyroaring.BitMap.deserialize(stored))),
    "rbm64": (lambda some: pyroaring.BitMap64(some).serialize(),
              lambda stored: frozenset(pyroaring.BitMap64.deserialize(stored))),
    "hll_sketch": (hll, lambda stored: estimate_of(datasketches.hll_sketch.deserialize(stored))),
    "theta_sketch": (
        theta, lambda stored: estimate_of(datasketches.compact_theta_sketch.deserialize(stored))
    ),
}  # fmt: skip
NUMBERS = st.frozensets(st.integers(0, 9) | st.sampled_from([65_535, 65_536, 2**31]), max_size=4)


@pytest.mark.parametrize("function", FORMATS)
@given(data=st.data())
def test_a_union_is_that_of_all_parts_however_it_is_cut(function, data):
    write, read = FORMATS[function]
    numbers = {}

    def stored(some):
        made = bytes(write(some))
        numbers[made] = some
        return made

    def united(accumulator, value, retract):
        assert not retract
        return accumulator if value is None else (accumulator or frozenset()) | numbers[value]

    def same(value):
        if value is None:
            return None
        return read(bytes(write(value)) if isinstance(value, frozenset) else value)

    versions = data.draw(histories(NUMBERS.map(stored)))
    checked("BYTES", function, united, versions, data.draw(cuts()), same=same)


@pytest.mark.parametrize("function", ["rbm32", "rbm64", "hll_sketch", "theta_sketch"])
def test_other_bytes_are_refused_by_name(function):
    with pytest.raises(InvalidInputError, match=function) as caught:
        merged(function, [b"\xff" * 9, b"nonsense"])
    assert caught.value.facts["key"] == {"k": 1}
