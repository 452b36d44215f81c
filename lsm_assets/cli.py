"""The command `lsm-assets`: creates a Dagster project, and runs the UI."""

import importlib.metadata
import importlib.util
import json
import keyword
import os
import re
from pathlib import Path

import click

from lsm_assets.home import (
    DEFAULT_PORT,
    LOOPBACK,
    PAGES_PORT,
    pages_command,
    prepare_home,
    run_with_companion,
    ui_command,
    ui_environment,
)
from lsm_assets.settings import CATALOG_URL, DAGSTER_HOME, WAREHOUSE, settings_from
from lsm_engine import LsmError, open_catalog

_DEFINITIONS = '''"""The tables of this project."""

from pathlib import Path

import dagster as dg

from lsm_assets.component import LsmColumn, LsmTable
from lsm_assets.settings import current_settings
from lsm_assets.warehouse_component import warehouse_definitions


def todays_orders(context: dg.AssetExecutionContext, table):
    """Return rows: a list of dictionaries made by Arrow, polars or pandas, or a Spark DataFrame."""
    import pyarrow as pa

    return pa.table({"order_id": [1, 2], "customer": ["Ada", "Bo"], "price": [9.5, 3.0]})


ORDERS = LsmTable(
    table="shop.orders",
    columns=[
        LsmColumn(name="order_id", type="BIGINT NOT NULL"),
        LsmColumn(name="customer", type="STRING", comment="who bought"),
        LsmColumn(name="price", type="DOUBLE", comment="in euros"),
    ],
    primary_key=["order_id"],
    writer=f"{__name__}:todays_orders",
)


@dg.definitions
def defs() -> dg.Definitions:
    """Return the tables above, and what `dg scaffold defs` has put into the folder `defs`."""
    project = dg.load_from_defs_folder(path_within_project=Path(__file__))
    tables = [ORDERS.assets(with_jobs=False)]
    return warehouse_definitions(tables, current_settings(), project=project)
'''

_PROJECT = """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["{requirement}"]

[project.optional-dependencies]
dev = ["dagster-dg-cli>=1.13,<1.14", "pytest>=8"]

[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
packages = ["{module}", "{module}.defs"]

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{module}"
code_location_target_module = "{module}.definitions"
registry_modules = ["lsm_assets.components"]

[tool.dagster]
module_name = "{module}.definitions"
code_location_name = "{module}"
"""

_README = """# {name}

    pip install -e '.[dev]'  # this project, pytest, and the command dg
    python -m pytest -q
    dg check defs
    lsm-assets ui            # Dagster on http://127.0.0.1:3000, tables and lineage on http://127.0.0.1:8577

Tables are declared in `{module}/definitions.py`; they are kept in `./lake`, or where LSM_WAREHOUSE points.
"""

_AGENTS = """# {name}: rules for whoever changes this project, people and programs

- Tables are `LsmTable` in `{module}/definitions.py`: columns by SQL types, `primary_key`, `partitioned_by`, `options`, and
  a `writer`. `lsm create --help` and `lsm alter --help` list what a table can have.
- A writer takes `(context, table)`. It returns rows (Arrow, polars, pandas, or a Spark DataFrame), or yields `Upsert`,
  `Delete` and `Overwrite` of `lsm_assets`: each is one commit. It commits nothing itself.
- A writer that reads other tables names them in `deps`, and reads the version that Dagster has recorded:
  `pinned = lsm_assets.pinning.pinned_table(context, key)`, then `pinned.table.scan(**pinned.at)`.
- Sums, and all that must count a row once, are fed by `lsm_assets.changes_to_feed`.
- After each change: `python -m pytest -q`, then `dg check defs`. Each table has a test with `warehouse_under_test()`, which
  needs neither Java nor a running Dagster.
- To run: `DAGSTER_HOME=$PWD/lake/dagster dagster asset materialize --select shop/orders -m {module}.definitions`.
- To look: `lsm tables`, `lsm show snapshots shop.orders`, `lsm scan shop.orders`. All of them only read; `lsm --json` before
  any command prints JSON.
- Nothing below `lake/` is edited or deleted by hand. `lsm rollback --help` undoes commits; `lsm doctor` lists damage and
  debt, with the command that mends each.
"""

_TEST = '''"""The tables of this project, made in a folder that is gone afterwards."""

from lsm_assets.testing import warehouse_under_test

from {module}.definitions import ORDERS


def test_orders_are_written():
    with warehouse_under_test() as warehouse:
        assert warehouse.materialize([ORDERS.assets().assets[0]]).success
        assert warehouse.catalog.table("shop.orders").count() == 2
'''


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Make and run a Dagster project of tables."""


@main.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def init(directory: Path) -> None:
    """Make a project with one table in DIRECTORY, which must be new or empty."""
    try:
        is_used = directory.exists() and any(directory.iterdir())
    except OSError as error:
        raise click.ClickException(f"cannot look into {directory}: {error.strerror}") from error
    # An existing project must not be overwritten.
    if is_used:
        raise click.ClickException(f"{directory} is not empty; name a new directory")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", directory.resolve().name).strip("-._") or "tables"
    module = _module_name(name)
    files = {
        "pyproject.toml": _PROJECT.format(
            name=name, module=module, requirement=package_requirement()
        ),
        "README.md": _README.format(name=name, module=module),
        "AGENTS.md": _AGENTS.format(name=name, module=module),
        f"{module}/__init__.py": '"""Tables as Dagster assets."""\n',
        f"{module}/definitions.py": _DEFINITIONS,
        f"{module}/defs/__init__.py": '"""Definitions that `dg scaffold defs` makes."""\n',
        "tests/test_tables.py": _TEST.format(module=module),
        ".gitignore": "lake/\n",
    }
    try:
        for path, text in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text)
    except OSError as error:
        raise click.ClickException(f"cannot make {directory}: {error.strerror}") from error
    click.echo(f"Made {directory}. Now: cd {directory} && lsm-assets ui")


def package_requirement() -> str:
    """Return the requirement of this package: from where it was installed, if that was a path or a repository."""
    requirement = "lsm-assets[dagster]"
    try:
        text = importlib.metadata.distribution("lsm-assets").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return requirement  # a clone on the path, without an installation
    if text is None:
        return requirement
    source = json.loads(text)
    url = source["url"]
    if vcs := source.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"{requirement} @ {url}"


def _module_name(name: str) -> str:
    """Return a package name for a project that is no keyword, no installed module, and no other directory of it."""
    module = re.sub(r"\W", "_", name.lower(), flags=re.ASCII).lstrip("0123456789_") or "tables"
    spec = importlib.util.find_spec(module)
    # A directory of that name, such as the new project's own, is a namespace package, which has no origin.
    is_module = spec is not None and spec.origin is not None
    is_taken = is_module or keyword.iskeyword(module) or module in ("lake", "tests")
    return f"{module}_tables" if is_taken else module


@main.command()
@click.option("--module", help="The module with `defs`.  [default: that of ./pyproject.toml]")
@click.option("--warehouse", metavar="LOCATION", help="[default: LSM_WAREHOUSE, or ./lake]")
@click.option("--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, show_default=True)
def ui(module: str | None, warehouse: str | None, port: int) -> None:
    """Run Dagster's UI and daemon, and beside it the pages of tables and lineage, until Ctrl-C."""
    variables = dict(os.environ)
    if warehouse:
        # The catalog and the home in the environment belong to another warehouse.
        warehouse_variables = (CATALOG_URL, DAGSTER_HOME)
        variables = {
            name: text for name, text in variables.items() if name not in warehouse_variables
        }
        variables[WAREHOUSE] = warehouse
    try:
        settings = settings_from(variables)
        prepare_home(settings)
        # `lsm ui` opens only an existing catalog. A new project has none yet.
        open_catalog(settings.catalog_url, warehouse=settings.warehouse).close()
    except LsmError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot make Dagster's home: {error}") from error
    command = [
        *ui_command(settings, port, with_workspace=False),
        *(["-m", module] if module else []),
    ]
    click.echo(
        f"Dagster: http://{LOOPBACK}:{port}, tables and lineage: http://{LOOPBACK}:{PAGES_PORT}"
    )
    python_path = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    }
    environment = {**variables, **ui_environment(settings), **python_path}
    raise SystemExit(run_with_companion(command, pages_command(settings, port), environment))


if __name__ == "__main__":
    main()
