"""Random rows, and random filters over them, for prune tests."""

import datetime as dt
import decimal

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

NAN = float("nan")
SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "f": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "m": pa.decimal128(10, 2),
        "t": pa.timestamp("ms"),
        "y": pa.binary(),
    }
)
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  the column has no zone
VALUES = {
    "i": st.integers(-3, 3),
    "f": st.sampled_from([NAN, -0.0, 0.0, 1.5, -1.5, float("inf"), 2.0]),
    "s": st.text("aäb\U0010ffff", max_size=3),
    "b": st.booleans(),
    "d": st.integers(0, 4).map(lambda n: dt.date(2024, 1, 1) + dt.timedelta(days=n)),
    "m": st.integers(-300, 300).map(lambda n: decimal.Decimal(n) / 100),
    "t": st.integers(-2, 4).map(lambda n: EPOCH + dt.timedelta(milliseconds=n)),
    "y": st.binary(max_size=2),
}
LITERALS = {
    **VALUES,
    "i": VALUES["i"] | st.sampled_from([1.5, NAN, 2.0, 2**40]),
    "t": VALUES["t"] | st.just(EPOCH + dt.timedelta(microseconds=500)),
}


def rows(max_size: int = 8) -> st.SearchStrategy[pa.Table]:
    row = st.fixed_dictionaries({name: st.none() | VALUES[name] for name in VALUES})
    return st.lists(row, max_size=max_size).map(
        lambda made: pa.Table.from_pylist(made, schema=SCHEMA)
    )


def columns(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(names)


@st.composite
def leaves(draw: st.DrawFn, names: tuple[str, ...] = tuple(VALUES)) -> pc.Expression:
    name = draw(columns(names))
    column = pc.field(name)
    match draw(st.sampled_from(["compare"] * 4 + ["in", "in", "null", "valid", "other"])):
        case "compare":
            value = pc.scalar(draw(LITERALS[name]))
            compare = draw(st.sampled_from([pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal]))  # fmt: skip
            return compare(value, column) if draw(st.booleans()) else compare(column, value)
        case "in":
            values = draw(st.lists(st.none() | VALUES[name], max_size=3))
            kind = SCHEMA.field(name).type
            return pc.is_in(column, pa.array(values, kind), skip_nulls=draw(st.booleans()))
        case "null":
            return column.is_null(nan_is_null=draw(st.booleans()))
        case "valid":
            return column.is_valid()
        case _:
            return draw(st.sampled_from(OTHERS.get(name, [column.is_valid()])))


OTHERS = {
    "i": [pc.field("i") + 1 > 2, pc.field("i").cast(pa.int64()) == 1],
    "s": [pc.starts_with(pc.field("s"), prefix) for prefix in ("", "a", "ä", "\U0010ffff")]
    + [pc.starts_with(pc.field("s"), "A", ignore_case=True), pc.match_like(pc.field("s"), "a%")],
    "b": [pc.field("b"), pc.scalar(True), pc.scalar(False), pc.scalar(pa.scalar(None, pa.bool_()))],
    "f": [pc.field("f").is_nan()],
}


def filters(names: tuple[str, ...] = tuple(VALUES)) -> st.SearchStrategy[pc.Expression]:
    return st.recursive(
        leaves(names),
        lambda inner: st.tuples(inner, inner, st.sampled_from("&|~")).map(
            lambda made: {"&": made[0] & made[1], "|": made[0] | made[1], "~": ~made[0]}[made[2]]
        ),
        max_leaves=6,
    )
