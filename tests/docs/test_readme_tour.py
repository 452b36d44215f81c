"""README's promises about itself: a door of 200 lines, two commands of one line each, examples that run; and the tour."""

from pathlib import Path

import duckdb
import pytest

from tests.docs.blocks import DOCS, ROOT, blocks, run_page
from tests.engines.iceberg_readers import duckdb_with_iceberg

README = ROOT / "README.md"
LINES = 200


@pytest.mark.slow
def test_the_tour_and_the_page_on_history_run_as_printed(tmp_path: Path) -> None:
    assert all(run_page(DOCS / "tour.md", tmp_path).values())
    history = run_page(DOCS / "history.md", tmp_path)  # goes on with the table of the tour
    assert history["bash"]
    assert history["text"]


@pytest.mark.parametrize(
    ("heading", "ends_with"),
    [("Run it", "lsm-sample --days 31"), ("Test it", "-m pytest -n 2 --dist loadgroup -q")],
)
def test_one_command_line_does_it(heading: str, ends_with: str) -> None:
    language, text = blocks(README, heading)[0]
    assert language == "bash"
    (line,) = text.splitlines()
    assert line.startswith("python3 -m venv .venv && .venv/bin/pip install")
    assert line.endswith(ends_with)


def test_it_is_a_door() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= LINES
    for heading in ("The Dagster graph", "What an LSM tree looks like", "Limits"):
        assert f"\n## {heading}\n" in text


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ((language, text),) = blocks(README, "In Python")
    assert language == "python"
    names: dict[str, object] = {}
    exec(text, names)
    assert repr(names["orders"]).startswith("<Table 'shop.orders' snapshot ")


# Polars calls a function of pyiceberg that goes in its next release.
@pytest.mark.filterwarnings("ignore:Call to to_vector:DeprecationWarning")
def test_other_engines_read_what_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ((language, text),) = blocks(README, "In other engines")
    assert language == "python"
    connection = duckdb_with_iceberg()
    if connection is None:
        pytest.skip("DuckDB's extension is not here")
    # The extension comes from its package here, and not from DuckDB's server.
    monkeypatch.setattr(
        duckdb, "sql", lambda query: None if "INSTALL" in query else connection.sql(query)
    )
    exec(text, {})


def test_its_sql_is_that_of_the_spark_page_which_a_test_runs() -> None:
    ((language, text),) = blocks(README, "In SQL on Spark")
    assert language == "sql"
    ran = [line for tongue, block in blocks(DOCS / "spark.md") if tongue == "python" for line in block.splitlines()]  # fmt: skip
    places = [
        next((number for number, one in enumerate(ran) if line in one), None)
        for line in text.splitlines()
        if line
    ]
    assert None not in places, text
    assert places == sorted(places), "in the order of the page"
