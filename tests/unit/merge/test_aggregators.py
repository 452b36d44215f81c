"""Each function, for each type that it takes, equals a fold in slow Python, however it is cut."""

import contextlib
import datetime as dt
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lsm_engine.base.errors import InvalidInputError, InvalidOptionError
from lsm_engine.merge.aggregators.registry import FUNCTIONS
from lsm_engine.merge.function import build_merge_function
from tests.unit.merge import slow_merge as slow
from tests.unit.merge.bracketing import cuts, replayed, schema_of

ADDS = ("+I", "+U")
KINDS = ("+I", "-U", "+U", "-D")
DAY = dt.date(2024, 2, 29)
EVE = dt.datetime.combine(dt.date(1969, 12, 31), dt.time())
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "TINYINT": st.integers(-5, 5),
    "SMALLINT": st.integers(-9, 9),
    "INT": st.integers(-9, 9),
    "BIGINT": st.integers(-(10**9), 10**9),
    "FLOAT": st.integers(-8, 8).map(float),
    "DOUBLE": st.integers(-8, 8).map(lambda n: n / 4),
    "DECIMAL(9, 2)": st.integers(-500, 500).map(lambda n: Decimal(n).scaleb(-2)),
    "DECIMAL(18, 0)": st.integers(-(10**12), 10**12).map(Decimal),
    "DECIMAL(25, 4)": st.integers(-(10**6), 10**6).map(lambda n: Decimal(n).scaleb(-4)),
    "DECIMAL(38, 6)": st.integers(-(10**30), 10**30).map(lambda n: Decimal(f"{n}e-6")),
    "STRING": st.text("ab \u00fc,", max_size=4),
    "BYTES": st.binary(max_size=3),
    "BOOLEAN": st.booleans(),
    "DATE": st.integers(-9, 9).map(lambda n: DAY + dt.timedelta(days=n)),
    "TIME(3)": st.integers(0, 9).map(lambda n: dt.time(1, 2, n, 3000)),
    "TIMESTAMP(6)": st.integers(-9, 9).map(lambda n: EVE + n * dt.timedelta(seconds=40_000)),
}  # fmt: skip
SOME = ("INT", "DOUBLE", "DECIMAL(25, 4)", "STRING", "BOOLEAN", "TIMESTAMP(6)")
"""One type of each way in which values are stored."""
NUMBERS = [name for name in VALUES if name[:3] in ("TIN", "SMA", "INT", "BIG", "FLO", "DOU", "DEC")]
ROW_TYPE = {
    "type": "ARRAY",
    "element": {
        "type": "ROW",
        "fields": [
            {"id": 11, "name": "a", "type": "INT"},
            {"id": 12, "name": "b", "type": "STRING"},
            {"id": 13, "name": "s", "type": "INT"},
        ],
    },
}
TIMED_TYPE = {
    "type": "MAP",
    "key": "STRING NOT NULL",
    "value": {
        "type": "ROW",
        "fields": [
            {"id": 11, "name": "t", "type": "STRING"},
            {"id": 12, "name": "v", "type": "INT"},
        ],
    },
}
SMALL = st.none() | st.integers(0, 2)
NESTED_ROWS = st.lists(
    st.none() | st.fixed_dictionaries({"a": SMALL, "b": st.sampled_from([None, "x", "y"]), "s": SMALL}),
    max_size=3,
)  # fmt: skip


def run_fits(kind: str):
    if kind.startswith("DECIMAL"):
        precision, scale = kind[8:-1].split(",")
        return slow.fits_decimal(int(precision), int(scale))
    bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}.get(kind)
    return slow.fits_bits(bits) if bits else lambda value: value


def divide_for(kind: str):
    if kind.startswith("DECIMAL"):

        def divide(a, b):
            with slow.localcontext() as context:
                context.prec = 100
                return a / b

        return divide
    return slow.towards_zero if kind in ("TINYINT", "SMALLINT", "INT", "BIGINT") else None


def checked(
    kind: Any,
    function: str,
    reference: Any,
    versions: list[tuple[int, str, Any]],
    plan: list[tuple[int, int]],
    *,
    options: dict[str, str] | None = None,
    same: Any = lambda value: value,
    ignore_retract: bool = False,
) -> None:
    """Compare the engine with the slow fold, the rows cut as `plan` says."""
    texts = {"merge-engine": "aggregation", "fields.c.aggregate-function": function}
    texts |= {f"fields.c.{key}": text for key, text in (options or {}).items()}
    if ignore_retract:
        texts["fields.c.ignore-retract"] = "true"
    schema = schema_of([("c", kind)], texts)
    by_key = defaultdict(list)
    for key, row_kind, value in versions:
        by_key[key].append((row_kind, value))
    try:
        wanted = {
            key: same(
                found[0][1]
                if len(found) == 1
                else slow.column(reference, found, ignore_retract=ignore_retract)
            )
            for key, found in by_key.items()
            if any(row_kind in ADDS for row_kind, _ in found)
        }
    except slow.DoesNotFitError:
        assume(False)
    rows = [{"k": key, "c": value, "kind": row_kind} for key, row_kind, value in versions]
    got = replayed(schema, rows, plan)
    assert {key: same(row["c"]) for key, row in got.items()} == wanted


def histories(values: st.SearchStrategy[Any], kinds: tuple[str, ...] = ADDS):
    """Versions of three keys; a key's first version adds, as a retract needs something to take."""

    def began(versions):
        seen = set()
        made = []
        for key, kind, value in versions:
            made.append((key, kind if key in seen else "+I", value))
            seen.add(key)
        return made

    version = st.tuples(st.integers(0, 2), st.sampled_from(kinds), st.none() | values)
    return st.lists(version, max_size=16).map(began)


def cases(*pairs: tuple[str, Any]) -> Any:
    return pytest.mark.parametrize(("function", "reference"), pairs)


@pytest.mark.parametrize("kind", NUMBERS)
@given(data=st.data())
def test_sum(kind, data):
    versions = data.draw(histories(VALUES[kind], KINDS))
    with slow.localcontext() as context:
        context.prec = 60
        checked(kind, "sum", slow.sum_step(run_fits(kind)), versions, data.draw(cuts()))


@pytest.mark.parametrize("kind", [kind for kind in NUMBERS if kind != "DECIMAL(38, 6)"])
@given(data=st.data())
def test_product(kind, data):
    values = st.sampled_from([-4, -2, -1, 1, 2, 3, 4]).map(
        lambda n: Decimal(n) if kind.startswith("DECIMAL") else float(n) if kind in ("FLOAT", "DOUBLE") else n
    )  # fmt: skip
    if kind in ("FLOAT", "DOUBLE"):  # powers of two divide without rounding
        values = st.sampled_from([-4.0, -2.0, -1.0, 0.5, 1.0, 2.0])
    versions = data.draw(histories(values, KINDS))
    divide = divide_for(kind) or (lambda a, b: a / b)
    with slow.localcontext() as context:
        context.prec = 60
        step = slow.product_step(run_fits(kind), divide)
        # Part of a product may be too large where the whole, which holds a quotient, is not.
        with contextlib.suppress(InvalidInputError):
            checked(kind, "product", step, versions, data.draw(cuts()))


@pytest.mark.parametrize("kind", SOME)
@cases(
    ("last_value", slow.last_value),
    ("last_non_null_value", slow.last_non_null_value),
)
@given(data=st.data())
def test_last(function, reference, kind, data):
    checked(kind, function, reference, data.draw(histories(VALUES[kind], KINDS)), data.draw(cuts()))


@pytest.mark.parametrize("kind", SOME)
@cases(
    ("first_value", slow.first_value),
    ("first_non_null_value", slow.first_non_null_value),
    ("first_not_null_value", slow.first_non_null_value),
)
@given(data=st.data())
def test_one_of_the_values(function, reference, kind, data):
    checked(kind, function, reference, data.draw(histories(VALUES[kind])), data.draw(cuts()))


@pytest.mark.parametrize("kind", VALUES)
@cases(("max", slow.greatest), ("min", slow.least))
@given(data=st.data())
def test_extremes(function, reference, kind, data):
    checked(kind, function, reference, data.draw(histories(VALUES[kind])), data.draw(cuts()))


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@cases(("max", slow.greatest), ("min", slow.least))
@given(data=st.data())
def test_extremes_go_by_the_order_of_java(function, reference, kind, data):
    values = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, -1.5])
    versions = data.draw(histories(values))
    # As text, which tells zeros apart, and in which NaN equals itself.
    checked(kind, function, reference, versions, data.draw(cuts()), same=repr)


@cases(("bool_and", slow.least), ("bool_or", slow.greatest))
@given(data=st.data())
def test_booleans(function, reference, data):
    versions = data.draw(histories(st.booleans()))
    checked("BOOLEAN", function, reference, versions, data.draw(cuts()))


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("delimiter", [None, ";", "ab"])
@given(versions=histories(st.text("ab ;,", max_size=5)), plan=cuts())
def test_listagg(distinct, delimiter, versions, plan):
    options = {"distinct": str(distinct).lower()}
    if delimiter is not None:
        options["list-agg-delimiter"] = delimiter
    reference = slow.list_agg(delimiter or ",", distinct=distinct)
    checked("STRING", "listagg", reference, versions, plan, options=options)


@given(versions=histories(st.integers(0, 9), KINDS), plan=cuts())
@cases(
    ("sum", slow.sum_step(lambda value: value)),
    ("max", slow.greatest),
    ("first_value", slow.first_value),
    ("last_non_null_value", slow.last_non_null_value),
)
def test_ignore_retract(function, reference, versions, plan):
    checked("INT", function, reference, versions, plan, ignore_retract=True)


def in_any_order(value):
    return (
        None if value is None else sorted(value, key=lambda row: repr(row and sorted(row.items())))
    )


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("element", ["INT", "STRING"])
@given(data=st.data())
def test_collect(distinct, element, data):
    values = {"INT": SMALL, "STRING": st.sampled_from([None, "", "a", "b"])}[element]
    versions = data.draw(histories(st.lists(values, max_size=3), KINDS))
    kind = {"type": "ARRAY", "element": element}
    options = {"distinct": str(distinct).lower()}
    reference = slow.collect(distinct=distinct)
    checked(kind, "collect", reference, versions, data.draw(cuts()), options=options)


@given(versions=histories(NESTED_ROWS, KINDS), plan=cuts())
def test_collect_distinct_rows(versions, plan):
    checked(
        ROW_TYPE, "collect", slow.collect(distinct=True), versions, plan, options={"distinct": "true"}
    )  # fmt: skip


MAPS = st.dictionaries(st.sampled_from("abc"), SMALL, max_size=3).map(lambda map: list(map.items()))


@given(versions=histories(MAPS, KINDS), plan=cuts())
def test_merge_map(versions, plan):
    kind = {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"}
    same = lambda value: None if value is None else dict(value)  # noqa: E731
    checked(kind, "merge_map", slow.merge_map, versions, plan, same=same)


TIMED = st.none() | st.fixed_dictionaries({"t": st.sampled_from([None, "1", "2", "3"]), "v": SMALL})


TIMED_MAPS = st.dictionaries(st.sampled_from("abc"), TIMED, max_size=3)


@given(versions=histories(TIMED_MAPS.map(lambda map: list(map.items()))), plan=cuts())
def test_merge_map_with_keytime(versions, plan):
    same = lambda value: None if value is None else dict(value)  # noqa: E731
    options = {"ts-field": "t"}
    reference = slow.merge_map_with_keytime
    checked(TIMED_TYPE, "merge_map_with_keytime", reference, versions, plan, options=options, same=same)  # fmt: skip


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize(("key", "sequence"), [((), ()), (("a",), ()), (("b", "a"), ("s",))])
@given(data=st.data())
def test_nested_update(limit, key, sequence, data):
    # Beyond a limit what a part leaves out is gone; parts are compared without retracts and limit.
    kinds = KINDS if limit is None else ADDS
    versions = data.draw(histories(NESTED_ROWS, kinds))
    options = {"nested-key": ",".join(key)} if key else {}
    if sequence:
        options["nested-sequence-field"] = ",".join(sequence)
    if limit:
        options["count-limit"] = str(limit)
    plan = data.draw(cuts()) if limit is None and not sequence else []
    reference = slow.nested_update(key, sequence, limit or 10**9)
    checked(
        ROW_TYPE, "nested_update", reference, versions, plan, options=options, same=in_any_order
    )


@pytest.mark.parametrize("function", ["nested_update", "nested_partial_update"])
def test_nested_rows_without_a_key(function):
    """A null in a nested key is a value like others, or hides its row, or is refused."""
    keyed = {"a": 1, "b": "x", "s": None}
    unkeyed = [{"a": None, "b": "y", "s": 1}, {"a": None, "b": "z", "s": 2}]
    rows = [
        {"k": 7, "c": [unkeyed[0], keyed], "kind": "+I"},
        {"k": 7, "c": [unkeyed[1]], "kind": "+I"},
    ]
    texts = {"merge-engine": "aggregation", "fields.c.aggregate-function": function,
             "fields.c.nested-key": "a"}  # fmt: skip

    def merged(strategy, rows=rows):
        key = {"fields.c.nested-key-null-strategy": strategy} if strategy else {}
        return replayed(schema_of([("c", ROW_TYPE)], texts | key), rows, [(1, 0), (1, 2)])

    both = in_any_order([keyed, unkeyed[1]])
    assert in_any_order(merged(None)[7]["c"]) == in_any_order(merged("merge")[7]["c"]) == both
    assert merged("ignore")[7]["c"] == [keyed]
    with pytest.raises(InvalidInputError, match="no value in its key") as caught:
        merged("error")
    assert caught.value.facts["key"] == {"k": 7}
    # A row that nothing is merged with stays as it came, as in Java.
    assert merged("error", rows[:1])[7]["c"] == rows[0]["c"]
    with pytest.raises(InvalidOptionError, match="nested-key-null-strategy"):
        merged("guess")


@given(versions=histories(NESTED_ROWS), plan=cuts())
def test_nested_partial_update(versions, plan):
    reference = slow.nested_partial_update(("a",))
    options = {"nested-key": "a"}
    checked(ROW_TYPE, "nested_partial_update", reference, versions, plan, options=options, same=in_any_order)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        ("TINYINT", 127),
        ("SMALLINT", 2**15 - 1),
        ("INT", 2**31 - 1),
        ("BIGINT", 2**63 - 1),
        ("DECIMAL(9, 2)", Decimal("9999999.99")),
        ("DECIMAL(18, 0)", Decimal(10**18 - 1)),
        ("DECIMAL(38, 0)", Decimal(10**38 - 1)),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_is_an_error_that_names_column_and_key(kind, limit, sign):
    texts = {"merge-engine": "aggregation", "fields.c.aggregate-function": "sum"}
    schema = schema_of([("c", kind)], texts)
    step = Decimal("0.01") if kind == "DECIMAL(9, 2)" else 1
    with slow.localcontext() as context:
        context.prec = 60
        most, small, twice = sign * limit, sign * step, sign * step * 2
        edge = [
            {"k": 7, "c": most - small, "kind": "+I"},
            {"k": 7, "c": small, "kind": "+I"},
        ]
    assert replayed(schema, edge, []) == {7: {"c": most}}
    beyond = [*edge, {"k": 7, "c": twice, "kind": "+I"}, {"k": 1, "c": step, "kind": "+I"}]
    with pytest.raises(InvalidInputError, match="does not fit") as caught:
        replayed(schema, beyond, [])
    assert caught.value.facts == {"column": "c", "key": {"k": 7}}


@pytest.mark.parametrize(
    ("values", "kinds"),
    [([2**62, 2], "++"), ([-(2**63), -1], "++"), ([-(2**63), -1], "+-"), ([-1, -(2**63)], "++")],
)
def test_products_never_wrap(values, kinds):
    texts = {"merge-engine": "aggregation", "fields.c.aggregate-function": "product"}
    rows = [
        {"k": 1, "c": value, "kind": "+I" if kind == "+" else "-U"}
        for value, kind in zip(values, kinds, strict=True)
    ]
    with pytest.raises(InvalidInputError, match="does not fit"):
        replayed(schema_of([("c", "BIGINT")], texts), rows, [])


def test_division_by_zero_is_an_error():
    texts = {"merge-engine": "aggregation", "fields.c.aggregate-function": "product"}
    for kind, zero in (("INT", 0), ("DECIMAL(9, 2)", Decimal(0))):
        rows = [{"k": 1, "c": zero + 5, "kind": "+I"}, {"k": 1, "c": zero, "kind": "-U"}]
        with pytest.raises(InvalidInputError, match="divide"):
            replayed(schema_of([("c", kind)], texts), rows, [])


TAKES = {
    "sum": NUMBERS,
    "product": [kind for kind in NUMBERS if kind != "DECIMAL(38, 6)"],
    "listagg": ["STRING"],
    "bool_and": ["BOOLEAN"],
    "bool_or": ["BOOLEAN"],
    "rbm32": ["BYTES"],
    "rbm64": ["BYTES"],
    "hll_sketch": ["BYTES"],
    "theta_sketch": ["BYTES"],
    "max": list(VALUES),
    "min": list(VALUES),
    "collect": [],
    "merge_map": [],
    "merge_map_with_keytime": [],
    "nested_update": [],
    "nested_partial_update": [],
}


@pytest.mark.parametrize("function", sorted(TAKES))
def test_other_types_are_refused(function):
    for kind in VALUES:
        texts = {"merge-engine": "aggregation", "fields.c.aggregate-function": function}
        schema = schema_of([("c", kind)], texts)
        if kind in TAKES[function]:
            build_merge_function(schema)
        else:
            with pytest.raises(InvalidOptionError, match=function):
                build_merge_function(schema)


def test_each_function_takes_some_types_or_any() -> None:
    takes_any = {"last_value", "last_non_null_value", "first_value", "first_non_null_value"}
    assert {*TAKES, *takes_any} == set(FUNCTIONS), "name the types of a new function in TAKES"
