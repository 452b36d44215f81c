"""Which files of an append table are joined, by size and order alone."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lsm_engine.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from lsm_engine.planning.compaction import AppendSizes, append_groups, row_range_groups

SIZES = AppendSizes(target_file_size=1000, min_file_count=5)


def files(*sizes: int) -> list[DataFileMeta]:
    """Files of these sizes, oldest first."""
    return [
        DataFileMeta(
            file_name=f"data-{number}", file_size=size, row_count=10, min_key=EMPTY_ROW,
            max_key=EMPTY_ROW, key_stats=EMPTY_STATS, value_stats=EMPTY_STATS,
            min_sequence_number=10 * number, max_sequence_number=10 * number + 9, schema_id=0,
            level=0,
        )
        for number, size in enumerate(sizes)
    ]  # fmt: skip


def sizes_of(groups: list[tuple[DataFileMeta, ...]]) -> list[list[int]]:
    return [[file.file_size for file in group] for group in groups]


def test_a_group_is_due_by_number_or_by_size() -> None:
    for in_order in (True, False):
        assert append_groups(files(10, 10, 10, 10), SIZES, in_order=in_order) == []
        five = append_groups(files(10, 10, 10, 10, 10), SIZES, in_order=in_order)
        assert sizes_of(five) == [[10] * 5]
        full = append_groups(files(600, 500), SIZES, in_order=in_order)
        assert sizes_of(full) == [[600, 500]]


def test_what_outweighs_the_rest_waits() -> None:
    for in_order in (True, False):
        assert append_groups(files(90, 10, 10, 10, 10), SIZES, in_order=in_order) == []
        six = append_groups(files(90, 10, 10, 10, 10, 10), SIZES, in_order=in_order)
        assert sizes_of(six) == [[10] * 5]


def test_order_is_kept_by_joining_neighbours_only() -> None:
    mixed = files(10, 10, 900, 10, 10, 10)
    assert append_groups(mixed, SIZES, in_order=True) == []
    assert sizes_of(append_groups(mixed, SIZES, in_order=False)) == [[10] * 5]
    assert sizes_of(append_groups(mixed, SIZES, in_order=True, full=True)) == [[10, 10], [10] * 3]


def test_full_joins_all_that_is_small_and_no_more() -> None:
    assert append_groups(files(900, 10), SIZES, in_order=False, full=True) == []
    assert sizes_of(append_groups(files(5, 900, 10), SIZES, in_order=False, full=True)) == [[5, 10]]
    alone = append_groups(
        files(900, 10), SIZES, in_order=True, full=True, must_rewrite=frozenset({"data-0"})
    )
    assert sizes_of(alone) == [[900, 10]]


@given(
    st.lists(st.integers(1, 1500), max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_groups_are_disjoint_and_in_order(sizes: list[int], in_order: bool, full: bool) -> None:
    given_files = files(*sizes)
    groups = append_groups(given_files, SIZES, in_order=in_order, full=full)
    chosen = [file.file_name for group in groups for file in group]
    assert len(set(chosen)) == len(chosen)
    numbers = {file.file_name: number for number, file in enumerate(given_files)}
    for group in groups:
        places = [numbers[file.file_name] for file in group]
        assert places == sorted(places)
        assert len(group) > 1
        if in_order:
            assert places == list(range(places[0], places[-1] + 1))


@given(st.integers(5, 300))
def test_a_row_is_rewritten_a_logarithmic_number_of_times(appends: int) -> None:
    sizes, live, written = AppendSizes(target_file_size=10**9, min_file_count=5), [], 0
    for number in range(appends):
        live += [files(10)[0].rename(f"n{number}")]
        ordered = list(live)
        for group in append_groups(ordered, sizes, in_order=False):
            size = sum(file.file_size for file in group)
            written += size
            joined = files(size)[0].rename(f"j{number}")
            live = [file for file in live if file not in group] + [joined]
    assert written <= 10 * appends * (appends.bit_length() + 1)


def ranges(*sizes: int, first: int = 0) -> list[DataFileMeta]:
    """Files of these sizes whose rows' ids follow each other."""
    return [
        replace(file, first_row_id=first + 10 * number, file_name=f"data-{first + 10 * number}")
        for number, file in enumerate(files(*sizes))
    ]


def test_ranges_of_ids_that_follow_each_other_are_joined() -> None:
    assert sizes_of(row_range_groups(ranges(*[10] * 5), SIZES)) == [[10] * 5]
    assert row_range_groups(ranges(*[10] * 4), SIZES) == []
    apart = [*ranges(*[10] * 3), *ranges(*[20] * 3, first=70)]
    assert row_range_groups(apart, SIZES) == []
    assert sizes_of(row_range_groups(apart, SIZES, full=True)) == [[10] * 3, [20] * 3]
    assert row_range_groups(ranges(10), SIZES, full=True) == []


def test_joined_ranges_do_not_grow_beyond_the_target() -> None:
    found = row_range_groups(ranges(400, 400, 400, 400), SIZES, full=True)
    assert sizes_of(found) == [[400, 400], [400, 400]]


def test_a_range_that_outweighs_those_after_it_waits() -> None:
    assert row_range_groups(ranges(90, *[10] * 4), SIZES) == []
    assert sizes_of(row_range_groups(ranges(90, *[10] * 5), SIZES)) == [[10] * 5]
    # The sum of those after it is what counts, and the last one that outweighs it.
    assert sizes_of(row_range_groups(ranges(40, *[10] * 5), SIZES)) == [[40, *[10] * 5]]
    assert sizes_of(row_range_groups(ranges(10, 90, *[10] * 5), SIZES)) == [[10] * 5]


def test_column_files_go_with_the_rows_that_they_belong_to() -> None:
    rows = ranges(300, 10)
    columns = [replace(rows[0], file_name=f"column-{n}", file_size=20) for n in range(4)]
    (alone,) = row_range_groups([*rows, *columns], SIZES)
    assert sorted(file.file_name for file in alone) == [
        *(f"column-{n}" for n in range(4)),
        "data-0",
    ]


def test_ranges_fill_a_file_to_its_target_and_no_further() -> None:
    def joined(*sizes: int) -> list[list[int]]:
        return sizes_of(row_range_groups(ranges(*sizes), SIZES, full=True))

    assert joined(500, 500) == [[500, 500]], "exactly the target"
    assert joined(500, 501) == []
    assert joined(1001, 10, 10) == [[10, 10]], "a stretch begins anew, its size too"
    assert joined(600, 600, 399, 2) == [[600, 399]], "the 2 would be one byte too many"


def test_the_first_range_may_begin_anywhere() -> None:
    for first in (0, 1, 10, 70):
        assert sizes_of(row_range_groups(ranges(10, 10, first=first), SIZES, full=True)) == [
            [10, 10]
        ]


def test_with_full_two_are_enough_and_none_waits() -> None:
    assert sizes_of(row_range_groups(ranges(90, 10, 10), SIZES, full=True)) == [[90, 10, 10]]


def test_files_of_one_number_are_joined_by_age() -> None:
    """As where nothing counts: created first, comes first; of an unknown time, before all."""
    made = {"c": 5, "a": 7, "b": None, "e": 0, "d": -1, "a1": 1}
    some = [
        replace(
            files(10)[0].rename(name), min_sequence_number=0, creation_millis=millis
        )
        for name, millis in made.items()
    ]  # fmt: skip
    (group,) = append_groups(some, SIZES, in_order=False)
    assert [file.file_name for file in group] == ["d", "b", "e", "a1", "c", "a"]
