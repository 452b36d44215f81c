"""Headers of pages, read one after the other: what they say, and what ends the walk."""

import numpy as np
import pytest

from lsm_engine.data_files.parquet_output import I32, STRUCT, Field, Writer, zigzag
from lsm_engine.kernels.arrow_views import address_of
from lsm_engine.kernels.parquet_pages import (
    FOUND,
    PAGE_FACTS,
    UNFINISHED,
    UNKNOWN,
    ColumnLimits,
    PageTable,
    RowNumbers,
    next_pages,
)
from tests.kernel_forms import FORMS, in_form

ROWS = np.array([3, 4, 17], np.int64)
COUNT = 20


@pytest.fixture(params=FORMS, autouse=True)
def form(request):
    with in_form(request.param):
        yield


def page(values, content=b"12345678", *, encoding=0, kind=0, levels_by=3):
    """A page of the first version, or a dictionary."""
    number = {1: values, 2: encoding} | ({3: levels_by, 4: levels_by} if kind == 0 else {})
    inner = {at: Field(I32, zigzag(each)) for at, each in number.items()}
    outer = {at: Field(I32, zigzag(each)) for at, each in {1: kind, 2: 8, 3: len(content)}.items()}
    return Writer().struct(outer | {5 if kind == 0 else 7: Field(STRUCT, inner)}) + content


def walk(data, *, end=None, most_bytes=100, has_levels=True, is_packed=False, room=8):
    """The pages found, how far the walk came in bytes and rows, and what ended it."""
    held = np.frombuffer(data, np.uint8)
    start = address_of(held)
    state = np.array([start, 0, FOUND], np.int64)
    found = np.zeros((room, PAGE_FACTS), np.int64)
    count = next_pages(
        start,
        start + (len(data) if end is None else end),
        ColumnLimits(start + len(data), most_bytes, COUNT, has_levels, is_packed),
        RowNumbers(address_of(ROWS), len(ROWS)),
        address_of(state),
        PageTable(address_of(found), room),
    )
    after, rows, ended = state.tolist()
    return found[:count, [0, 4, 8, 9, 10]].tolist(), after - start, rows, ended


def test_pages_without_wanted_rows_are_passed_over():
    data = page(5, kind=2) + page(8) + page(4) + page(8)
    found, after, rows, ended = walk(data)
    assert found == [[2, 5, 0, 0, 0], [0, 8, 0, 0, 2], [0, 8, 12, 2, 3]]
    assert (after, rows, ended) == (len(data), COUNT, FOUND)


def test_a_walk_ends_where_there_is_no_more_room():
    found, after, rows, ended = walk(page(8) + page(12), room=1)
    assert found == [[0, 8, 0, 0, 2]]
    assert (after, rows, ended) == (len(page(8)), 8, FOUND)


def test_a_header_that_goes_on_beyond_what_was_read():
    data = page(8) + page(12)
    _, after, rows, ended = walk(data, end=len(page(8)) + 5)
    assert (after, rows, ended) == (len(page(8)), 8, UNFINISHED)


def test_a_page_that_ends_beyond_its_column():
    assert walk(page(20)[:-1])[1:] == (0, 0, UNKNOWN)


@pytest.mark.parametrize(
    "odd",
    [
        page(20, encoding=5),
        page(20, levels_by=4),
        page(5) + page(3, kind=2),
        page(21),
        page(2**54) + page(2**54),
    ],
    ids=["encoding", "levels", "late dictionary", "too many rows", "far too many rows"],
)
def test_pages_that_are_not_known_here(odd):
    assert walk(odd)[3] == UNKNOWN


def test_a_page_larger_than_its_column_is_not_known_here():
    assert walk(page(20), most_bytes=7)[3] == UNKNOWN


def test_levels_of_any_kind_do_where_every_row_has_a_value():
    assert walk(page(20, levels_by=4), has_levels=False)[3] == FOUND


def test_an_uncompressed_page_of_another_size_is_not_known_here():
    assert walk(page(20, b"123456789"))[3] == UNKNOWN
    assert walk(page(20, b"123456789"), is_packed=True)[3] == FOUND


def test_a_header_without_what_all_have_is_none():
    """A flipped bit made the last byte of a dictionary an empty header, and the checksum an unknown one."""
    assert walk(b"\0" + page(20))[1:] == (0, 0, UNFINISHED)
    sound = page(20)
    for at in range(len(sound) - 8):
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << bit
            found, _, rows, ended = walk(bytes(damaged), most_bytes=8)
            assert ended != FOUND or rows != COUNT or found in (walk(sound)[0], [])
