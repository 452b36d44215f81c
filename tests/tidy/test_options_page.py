"""docs/options.md is what the option declarations generate."""

import re
from pathlib import Path

import lsm_engine
from lsm_engine.options import core_options
from lsm_engine.options.option import Option
from tests.tidy.options_page import options_page

PAGE = Path(lsm_engine.__file__).parent / "docs" / "options.md"


def test_options_page_is_in_step(rewrite: bool) -> None:
    if rewrite:
        PAGE.write_text(options_page())
    is_in_step = PAGE.read_text() == options_page()
    assert is_in_step, (
        "run pytest tests/tidy/test_options_page.py --rewrite and review the difference"
    )


ACCEPTED = {  # accepted without effect, as their docs state: nothing reads them
    "STATS_DENSE_STORE",
    "INDEX_BLOOM_USE_TREE",
    "SNAPSHOT_EXPIRE_EXECUTION_MODE",
    "SORT_ENGINE",
    "DELETE_FORCE_PRODUCE_CHANGELOG",
    "COMMIT_FORCE_COMPACT",
    "PATH",
    "OWNER",
    "TYPE",
    "CROSS_PARTITION_UPSERT_BOOTSTRAP_PARALLELISM",
    "CONSUMER_MODE",
    "PARTITION_EXPIRATION_CHECK_INTERVAL",
    "PARTITION_EXPIRATION_BATCH_SIZE",
}


def test_every_supported_option_is_read_somewhere() -> None:
    root = Path(lsm_engine.__file__).parent
    words = {
        word
        for path in root.rglob("*.py")
        if path.name != "core_options.py"
        for word in re.findall(r"\w+", path.read_text())
    }
    unread = [
        name
        for name, value in vars(core_options).items()
        if isinstance(value, Option)
        and value.supported is None
        and name not in ACCEPTED
        and name not in words
    ]
    assert not unread, (
        "no module reads options[core_options.NAME] of these; an option without effect is in ACCEPTED"
    )
