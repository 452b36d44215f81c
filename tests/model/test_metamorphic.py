"""Layouts change cost, never content: the same operations on tables of different options read alike."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_engine.testing.memory_file_io import MemoryFileIO
from tests.model.column_kinds import to_rows
from tests.model.strategies import (
    Layout,
    bulk_rows,
    key_pool,
    picked_rows,
    picks,
    shapes,
)
from tests.model.table_model import Shape
from tests.model.world import World

LAYOUTS = (
    Layout(),
    Layout(bucket=7, options=(("target-file-size", "1 kb"), ("write-buffer-size", "2 kb"))),
    Layout(
        bucket=2,
        options=(
            ("write-buffer-spillable", "false"),
            ("write-buffer-size", "2 kb"),
            ("num-sorted-run.compaction-trigger", "2"),
            ("metadata.stats-mode", "none"),
            ("manifest.merge-min-count", "2"),
        ),
    ),
    Layout(
        options=(
            ("write-only", "true"),
            ("file.block-size", "1 kb"),
            ("source.split.target-size", "1 b"),
            ("manifest.full-compaction-threshold-size", "1 b"),
            ("file.compression", "none"),
        )
    ),
)

operations = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), picks),
        st.tuples(st.just("many"), st.integers(0, 2**10)),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("overwrite"), picks),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=max(5, settings.default.max_examples // 10))
@given(shape=shapes(), done=operations)
def test_layouts_read_alike(shape: Shape, done: list[tuple[str, object]]) -> None:
    # Under a user's sequence a forgotten delete is the specification's choice, not the layout's.
    shape = Shape(shape.columns, shape.primary_key, shape.partitioned_by)
    pool = key_pool(shape, many=True)
    worlds = [World(shape, layout, MemoryFileIO()) for layout in LAYOUTS]
    for what, argument in done:
        for world in worlds:
            act(world, pool, what, argument)
        first, *others = (rows_of(world) for world in worlds)
        for world, rows in zip(worlds[1:], others, strict=True):
            assert rows == first, f"{world.layout} after {what}"
    for world in worlds:
        world.check()


def act(world: World, pool: list, what: str, argument: object) -> None:
    match what, argument:
        case "upsert", list(chosen):
            world.upsert(picked_rows(world.shape, pool, chosen))
        case "many", int(seed):
            world.upsert(bulk_rows(world.shape, pool, seed, 150, seed))
        case "compact", bool(full):
            world.compact(full=full)
        case "overwrite", list(chosen):
            world.overwrite(picked_rows(world.shape, pool, chosen), None)
    world.settle()


def rows_of(world: World) -> list[str]:
    return sorted(map(repr, to_rows(world.table.scan().to_arrow(), world.shape.names)))
