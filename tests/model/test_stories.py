"""Short histories with a point, each against the model: what random ones rarely arrange by themselves."""

from collections.abc import Callable
from decimal import Decimal

import pyarrow.compute as pc
import pytest

from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.column_kinds import (
    BIGINT,
    DOUBLE,
    INT,
    NAN,
    PARTITION_STRING,
    SMALL_DECIMAL,
    STRING,
    TIMESTAMP_MICROS,
)
from tests.model.strategies import (
    PARTITIONED_SHAPE,
    PLAIN_SHAPE,
    SEQUENCE_SHAPE,
    Layout,
    bulk_rows,
    key_pool,
    row_of,
)
from tests.model.table_model import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Shape
from tests.model.world import World, by_key, read, reopen

PATIENT = (("write-only", "true"), ("num-sorted-run.compaction-trigger", "2"))


def world_of(shape: Shape, *options: tuple[str, str], bucket: int = 1) -> World:
    return World(shape, Layout(bucket=bucket, options=options or PATIENT), MemoryFileIO())


def step(world: World) -> None:
    world.settle()
    world.check()


def put(world: World, *rows: tuple[object, ...], kind: str = INSERT) -> None:
    world.upsert([(kind, row) for row in rows])
    step(world)


def deletes_above_a_deep_level() -> None:
    """Small runs of deletes merge among themselves: the deletes still hide what lies below."""
    world = world_of(PLAIN_SHAPE)
    pool = key_pool(PLAIN_SHAPE, many=True)
    world.upsert(bulk_rows(world.shape, pool, 0, len(pool), 5))
    step(world)
    world.compact(full=True)
    step(world)
    deepest = max(entry.level for entry in live(world))
    for number in (3, 5):
        world.delete([pool[number]])
        step(world)
    world.compact()
    step(world)
    levels = sorted({entry.level for entry in live(world)})
    assert len(levels) == 2, levels
    assert 0 < levels[0] < levels[1] == deepest, "the story needs a compaction above the last level"
    world.compact(full=True)
    step(world)
    assert not any(entry.file["_DELETE_ROW_COUNT"] for entry in live(world)), "deletes lie for ever"


def live(world: World) -> list:
    snapshots = world.stored.snapshots()
    return list(world.stored.live(snapshots[max(snapshots)]).values())


def a_replaced_value_is_not_found() -> None:
    """The newer version lies in a file whose statistics rule the filter out."""
    world = world_of(PLAIN_SHAPE)
    put(world, (1, 10), (2, 20))
    put(world, (1, 11))
    for value, keys in ((10, set()), (11, {(1,)}), (20, {(2,)})):
        assert read(world.table, world.shape, where=pc.field("v") == value).keys() == keys
    put(world, (2, None), kind=DELETE)
    assert not read(world.table, world.shape, where=pc.field("v") == 20)
    world.compact(full=True)
    step(world)
    assert not read(world.table, world.shape, where=pc.field("v") >= 20)


def a_tag_outlives_its_snapshot() -> None:
    world = world_of(PLAIN_SHAPE)
    put(world, (1, 10), (2, 20))
    world.create_tag("kept")
    world.create_tag("other", 1)
    put(world, (1, 11))
    world.compact(full=True)
    step(world)
    world.clock.advance(10_000)
    world.table.expire_snapshots(retain_min=1, retain_max=1)
    world.model.expire([1, 2])
    step(world)
    assert read(world.table, world.shape, tag="kept") == {(1,): (1, 10), (2,): (2, 20)}
    world.delete_tag("kept")
    step(world)
    assert read(world.table, world.shape, tag="other") == {(1,): (1, 10), (2,): (2, 20)}
    world.delete_tag("other")
    step(world)  # nothing may be left of what only they named


def retention_counts() -> None:
    """The boundaries of minimum, maximum and age, one by one."""
    world = world_of(PLAIN_SHAPE)
    for number in range(6):
        put(world, (number, number))
        world.clock.advance(1_000)
    now = world.clock.now_millis()
    for keep_min, keep_max, age, oldest in (
        (6, 6, 0, 1),
        (5, 9, 3_600_000, 1),  # all are young
        (1, 9, 5_000, 1),  # the successor of 1 is exactly that old, which is not older
        (1, 9, 4_999, 2),
        (1, 4, 3_600_000, 3),  # more than the maximum
        (3, 9, 0, 4),  # the minimum stays
        (1, 9, 0, 6),
    ):
        expected = world.model.to_expire(
            now, keep_min=keep_min, keep_max=keep_max, keep_millis=age, limit=50
        )
        world.table.expire_snapshots(
            retain_min=keep_min, retain_max=keep_max, older_than=f"{age} ms"
        )
        world.model.expire(expected)
        step(world)
        assert min(world.model.snapshots) == oldest


def time_is_inclusive() -> None:
    world = world_of(PLAIN_SHAPE)
    put(world, (1, 10))
    world.clock.advance(1_000)
    put(world, (1, 11))
    first, second = (world.model.snapshots[number].time_millis for number in (1, 2))
    for millis, value in ((first, 10), (second - 1, 10), (second, 11), (second + 9, 11)):
        assert read(world.table, world.shape, as_of_millis=millis) == {(1,): (1, value)}


def the_users_sequence_decides() -> None:
    """Greater is newer, null is oldest, the later of equals wins; a delete needs a sequence too."""
    world = world_of(SEQUENCE_SHAPE)
    put(world, (1, 5, "five"), (2, None, "null"), (3, 7, "seven"), (3, 6, "six"))
    put(world, (1, 4, "four"), (2, 0, "zero"), (3, 7, "seven again"))
    put(world, (1, None, "null"), (2, None, "null again"))
    assert read(world.table, world.shape) == {
        (1,): (1, 5, "five"), (2,): (2, 0, "zero"), (3,): (3, 7, "seven again"),
    }  # fmt: skip
    put(world, (1, 4, None), (3, 8, None), kind=DELETE)
    assert read(world.table, world.shape).keys() == {(1,), (2,)}
    world.compact(full=True)
    step(world)


def the_smaller_sequence_decides() -> None:
    shape = Shape(SEQUENCE_SHAPE.columns, ("k",), sequence=("s",), sequence_descending=True)
    world = world_of(shape)
    put(world, (1, 5, "five"), (2, None, "null"))
    put(world, (1, 6, "six"), (2, 9, "nine"))
    put(world, (1, 4, "four"), (2, None, "null again"))
    assert read(world.table, shape) == {(1,): (1, 4, "four"), (2,): (2, 9, "nine")}
    world.compact(full=True)
    step(world)


def row_kinds() -> None:
    """+U is there, -U and -D are not, whatever was there before; the last of a batch counts."""
    world = world_of(PLAIN_SHAPE)
    world.upsert(
        [
            (UPDATE_AFTER, (1, 1)),
            (DELETE, (1, 1)),
            (INSERT, (1, 2)),
            (INSERT, (2, 2)),
            (UPDATE_BEFORE, (2, 2)),
            (DELETE, (3, None)),
        ]
    )
    step(world)
    assert read(world.table, world.shape) == {(1,): (1, 2)}
    put(world, (1, 3), kind=UPDATE_AFTER)
    world.compact(full=True)
    step(world)
    put(world, (1, None), kind=UPDATE_BEFORE)
    put(world, (1, 4))
    assert read(world.table, world.shape) == {(1,): (1, 4)}


def statistics_at_their_edges() -> None:
    """Texts that are cut: their bounds must hold, or not be there."""
    shape = Shape((("k", STRING), ("v", STRING), ("d", DOUBLE)), ("k",))
    world = world_of(shape, ("metadata.stats-mode", "truncate(3)"), *PATIENT)
    texts = (
        "abc", "abcd", "ab\U0010ffffd", "\U0010ffff" * 4, "ab\ud7ffd", "", "\u00e4\u00f6\u00fc\u00df",
    )  # fmt: skip
    for number, text in enumerate(texts):
        put(world, (text, text, float(number)), (text + "x", text + "y", NAN))
    for text in (*texts, "abd", "zzz"):
        for where in (pc.field("v") == text, pc.field("v") > text, pc.field("k") <= text):
            whole = world.table.scan().to_arrow()
            assert read(world.table, shape, where=where) == by_key(shape, whole.filter(where))
    world.compact(full=True)
    step(world)


def partitions_with_any_name() -> None:
    """Blank, dots, slashes and equal signs; one directory may hold several partitions."""
    shape = Shape(
        (("p", PARTITION_STRING), ("k", INT), ("v", BIGINT)), ("p", "k"), partitioned_by=("p",)
    )
    world = world_of(shape, bucket=2)
    names = ("", " ", "..", "a/b=c", "\u00fc%2F", "x\x01y", "__DEFAULT_PARTITION__", "a\\b", "'\"")
    put(world, *((name, number, number) for number, name in enumerate(names)))
    put(world, *((name, number, -number) for number, name in enumerate(names)))
    world.compact(full=True)
    step(world)
    for number, name in enumerate(names):
        rows = read(world.table, shape, where=pc.field("p") == name)
        assert rows == {(name, number): (name, number, -number)}
    world.overwrite([(INSERT, ("", 7, 7))], {"p": ""})
    step(world)
    world.overwrite([], {"p": ".."})
    step(world)
    assert ("..", 2) not in read(world.table, shape)


def a_key_in_another_order_than_its_columns() -> None:
    """The key is in declared order: files sort by it, and its bounds are of it."""
    shape = Shape((("b", INT), ("v", BIGINT), ("a", STRING), ("c", SMALL_DECIMAL)), ("c", "a", "b"))
    world = world_of(shape, ("write-only", "true"), ("target-file-size", "1 kb"), bucket=2)
    cents = Decimal("0.01")
    rows = [(b % 3, b, f"{b % 5}", cents * (b % 7)) for b in range(60)]
    for start in (0, 20, 40):
        put(world, *rows[start : start + 30])
    world.compact(full=True)
    step(world)
    where = (pc.field("a") == "3") & (pc.field("c") >= cents * 2)
    whole = world.table.scan().to_arrow()
    assert read(world.table, shape, where=where) == by_key(shape, whole.filter(where))


def two_writers_on_one_base() -> None:
    """Both numbered their rows alike; the one that lands last is the newer one."""
    world = world_of(PARTITIONED_SHAPE, bucket=2)
    pool = key_pool(PARTITIONED_SHAPE)
    world.upsert([(INSERT, row_of(world.shape, key, 1)) for key in pool])
    step(world)

    def intrude() -> None:
        ours, world.table = world.table, reopen(world.parts)
        world.upsert([(INSERT, row_of(world.shape, key, 2)) for key in pool])
        world.settle()
        world.table = ours

    with world.intruder(intrude):
        world.upsert([(INSERT, row_of(world.shape, key, 3)) for key in pool[::2]])
    step(world)
    world.compact(full=True)
    step(world)


def rows_are_cut_everywhere() -> None:
    """One row per batch and per row group: runs are cut at every key, and beside it."""
    shape = Shape((("k", TIMESTAMP_MICROS), ("v", BIGINT)), ("k",))
    world = world_of(
        shape, *PATIENT, ("file.block-size", "1 b"), ("target-file-size", "1 kb"),
        ("write-buffer-size", "1 kb"), ("sort-spill-threshold", "2"),
    )  # fmt: skip
    for start, stride in ((0, 1), (0, 2), (1, 3), (5, 1)):
        put(world, *((number, start * 100 + number) for number in range(start, 40, stride)))
    world.compact(full=True)
    step(world)


def an_emptied_table() -> None:
    """Everything is deleted and forgotten, and then comes back."""
    world = world_of(PLAIN_SHAPE, bucket=7)
    put(world, *((number, number) for number in range(20)))
    world.delete([(number,) for number in range(20)])
    step(world)
    world.compact(full=True)
    step(world)
    assert world.table.scan().count() == 0
    put(world, (1, 5))
    world.overwrite([], None)
    step(world)
    put(world, (2, 6))
    assert read(world.table, world.shape) == {(2,): (2, 6)}


STORIES: tuple[Callable[[], None], ...] = (
    deletes_above_a_deep_level,
    a_replaced_value_is_not_found,
    a_tag_outlives_its_snapshot,
    retention_counts,
    time_is_inclusive,
    the_users_sequence_decides,
    the_smaller_sequence_decides,
    row_kinds,
    statistics_at_their_edges,
    partitions_with_any_name,
    a_key_in_another_order_than_its_columns,
    two_writers_on_one_base,
    rows_are_cut_everywhere,
    an_emptied_table,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story: Callable[[], None]) -> None:
    story()
