"""Strategies of buckets: any number of level-0 files over levels of disjoint files."""

from dataclasses import replace

from hypothesis import strategies as st

from tests.shapes import files, key_of

SIZES = st.integers(0, 200)


@st.composite
def buckets(draw, deepest=5):
    """Draw the files of a bucket: keys 0 to 40, sizes to 200, a newer run above an older one."""
    ranges = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted)
    drawn = [(0, low, high) for low, high in draw(st.lists(ranges, max_size=6))]
    for level in range(1, deepest + 1):
        bounds = sorted(draw(st.sets(st.integers(0, 40), max_size=8)))
        drawn += [(level, low, high) for low, high in zip(bounds[::2], bounds[1::2], strict=False)]
    (template,) = files("L0:1")
    return [
        replace(
            template,
            file_name=f"file-{at}",
            file_size=draw(SIZES),
            level=level,
            min_key=key_of(low),
            max_key=key_of(high),
            min_sequence_number=1000 - at,
            max_sequence_number=1000 - at,
            delete_row_count=draw(st.sampled_from([0, 0, 2, None])),
        )
        for at, (level, low, high) in enumerate(drawn)
    ]
