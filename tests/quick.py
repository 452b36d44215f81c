"""Which tests are `quick`: one of every part, and within a minute on two cores together.

python -m pytest -n 2 -q -m quick
"""

from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMAND = "-m pytest -n 2 -q -m quick"
QUICK = (
    "cases",
    "unit/storage",
    "unit/kernels/test_rows.py",
    "unit/lsm",
    "unit/merge/test_deduplicate.py",
    "unit/planning",
    "unit/filter",
    "unit/types",
    "unit/metadata",
    "unit/format/test_stats.py",
    "unit/catalog/test_names.py",
    "unit/lookup/test_single_keys.py",
    "unit/api/test_first_calls.py",
    "unit/read/test_query_engines.py",
    "unit/server/test_operations.py",
    "unit/api/test_start.py",
    "unit/base/test_record.py",
    "unit/cache/test_shared_cache.py",
    "unit/changes/test_changes_of_overwrites.py",
    "unit/commit/test_delta_entries.py",
    "unit/compact/test_what_is_due.py",
    "unit/data_files/test_encoding_threads.py",
    "unit/ddl/test_column_defaults.py",
    "unit/dml/test_overwrite_filters.py",
    "unit/inspect/test_changed_partitions.py",
    "unit/maintenance/test_lost_index_manifest.py",
    "unit/options/test_options_parsed_once.py",
    "unit/table/test_incoming.py",
    "unit/write/test_keys_keep_partition.py",
    "tidy/test_words.py",
)
"""Files and folders below `tests`."""
LONG = (
    "unit/data_files/test_encoding_threads.py",
    "unit/data_files/test_parquet_footer.py",
    "unit/data_files/test_statistics_of_many.py",
)
"""Files of those folders that take seconds."""
MARKED = ("unit/table/test_system_calls.py",)
"""Files that mark some of their tests as quick themselves."""

SLOW = frozenset(
    {"slow", "spark", "dagster", "interop", "interop_full", "browser", "race", "sweep", "bench"}
)
"""Marks that keep a test out."""


def may_hold_quick(path: Path) -> bool:
    """Whether a file or folder is, or holds, one of those listed: others need not be imported."""
    if not path.is_relative_to(HERE):
        return True
    place = path.relative_to(HERE)
    listed = (*QUICK, *MARKED)
    return any(place.is_relative_to(name) or Path(name).is_relative_to(place) for name in listed)


@cache
def is_listed(path: Path) -> bool:
    """Whether a file is one of those listed, or in a folder that is."""
    place = path.relative_to(HERE)
    return any(place.is_relative_to(name) for name in QUICK) and str(place) not in LONG


def is_quick(item: pytest.Item) -> bool:
    """Whether a test belongs to the quick ones."""
    return is_listed(item.path) and not SLOW & {mark.name for mark in item.iter_markers()}
