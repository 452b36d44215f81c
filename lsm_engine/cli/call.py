"""The options of one invocation, and how it finds its catalog and tables."""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import lsm_engine as engine  # whose names are loaded where they are used: help needs none of them

if TYPE_CHECKING:
    from lsm_engine import Catalog, Executor, Table
    from lsm_engine.cli.output import Output


F = TypeVar("F", bound=Callable[..., Any])
STANDARD_STREAM = "-"
"""The file that stands for standard input or output."""


def split_names(names: str | None) -> tuple[str, ...]:
    """Return names that are written with commas between."""
    return tuple(name.strip() for name in names.split(",")) if names else ()


def _texts_by_column(pairs: Sequence[str]) -> dict[str, list[str]]:
    """Return the texts of each column, which are written COLUMN=TEXT."""
    texts: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"write COLUMN=…, not {pair!r}")
        texts.setdefault(name, []).append(text)
    return texts


# -- Common options of commands --------------------------------------------------------------------

FORMATS = ("parquet", "csv", "jsonl", "arrow", "excel")
"""Formats of files of rows, as options name them."""
ROWS_SHOWN = 100
"""Rows that are printed at a terminal by default."""

YES = click.option("--yes", is_flag=True, help="Do not ask.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
DEEP = click.option("--deep", is_flag=True, help="Also read every page of every data file.")
COLUMNS = click.option(
    "--columns", metavar="NAMES", help="These columns, with commas between.  [default: all]"
)
WHERE = click.option(
    "--where",
    metavar="FILTER",
    help="Only rows that match, such as \"price > 5 AND dt = '2024-05-01'\".",
)
ROWS = click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"At most N rows; 0: all.  [default: {ROWS_SHOWN} at a terminal, else all]",
)
AS_OF_SNAPSHOT = click.option(
    "--snapshot", "snapshot_id", type=int, metavar="ID", help="As of this snapshot."
)
AS_OF_TAG = click.option("--tag", metavar="NAME", help="The state of this tag.")
PARTITIONS = click.option(
    "--partition",
    "partitions",
    metavar="COLUMN=VALUE,…",
    multiple=True,
    help="Only this partition; repeat it for more partitions.",
)
_TEXT_FORMS = (
    click.option("--format", type=click.Choice(FORMATS),
                 help="Format of the files.  [default: by extension]"),
    click.option("--null", "null_values", metavar="TEXT", multiple=True,
                 help="CSV: what means null; repeatable.  [default: nothing; NA, NULL in numbers and times]"),
    click.option("--delimiter", metavar="CHAR",
                 help="CSV: between values.  [default: a comma, in .tsv a tab]"),
    click.option("--quote", metavar="CHAR", help="CSV: around text; '': none.  [default: \"]"),
    click.option("--header/--no-header", default=True, help="CSV: whether a line has the columns' names."),
    click.option("--date-format", metavar="FORMAT", multiple=True,
                 help="CSV: such as %d/%m/%Y; repeatable, tried in turn.  [default: ISO 8601]"),
    click.option("--time-format", metavar="FORMAT", multiple=True,
                 help="CSV: such as %H.%M; repeatable, tried in turn.  [default: ISO 8601]"),
    click.option("--timestamp-format", metavar="FORMAT", multiple=True,
                 help="CSV: such as '%d/%m/%Y %H:%M'; repeatable.  [default: ISO 8601]"),
    click.option("--decimal-point", metavar="CHAR", help="CSV: of numbers.  [default: .]"),
)  # fmt: skip
_READING_FORMS = (
    click.option("--include-columns", metavar="NAMES", callback=lambda _, __, value: split_names(value),
                 help="The columns that are read, with commas between.  [default: all]"),
    click.option("--cast", "casts", metavar="COLUMN=TYPE", multiple=True,
                 callback=lambda _, __, value: {name: texts[-1] for name, texts in _texts_by_column(value).items()},
                 help="Give a column of Parquet or other files this type; repeatable."),
    click.option("--null-in", "column_null_values", metavar="COLUMN=TEXT", multiple=True,
                 callback=lambda _, __, value: _texts_by_column(value),
                 help="CSV: what means null in one column; repeatable."),
    click.option("--names", metavar="NAMES", callback=lambda _, __, value: split_names(value),
                 help="CSV: names of the columns, in place of the header's."),
    click.option("--thousands", metavar="CHAR", help="CSV: between the thousands of numbers."),
    click.option("--escape", metavar="CHAR", help="CSV: before a character that stands for itself."),
    click.option("--encoding", metavar="NAME", help="CSV, JSON: such as latin1.  [default: UTF-8]"),
    click.option("--skip-lines", type=click.IntRange(0), default=0, metavar="N",
                 help="Lines before the header."),
    click.option("--sheet", metavar="NAME", help="Excel: the sheet.  [default: the first]"),
    click.option("--on-error", type=click.Choice(("fail", "skip")), default="fail",
                 help="What a line that cannot be read does: fail, or be left out.  [default: fail]"),
    click.option("--rejects", metavar="FILE", help="Write the lines that were left out to this CSV file."),
)  # fmt: skip


def written_files(function: F) -> F:
    """Add the options of files that are written; they come under the names of `lsm_engine.FileOptions`."""
    for option in reversed(_TEXT_FORMS):
        function = option(function)
    return function


def read_options(function: F) -> F:
    """Add the options of files that are read; they come under the names of `lsm_engine.FileOptions`."""
    for option in reversed((*_TEXT_FORMS, *_READING_FORMS)):
        function = option(function)
    return function


RETAIN_MIN = click.option(
    "--retain-min",
    type=click.IntRange(1),
    metavar="N",
    help="Keep at least the newest N.  [default: the table's]",
)
RETAIN_MAX = click.option(
    "--retain-max",
    type=click.IntRange(1),
    metavar="N",
    help="Keep at most the newest N.  [default: the table's]",
)


# -- The options of one invocation, and how it finds its catalog and tables ------------------------

CATALOG_VARIABLES = ("LSM_CATALOG", "LSM_CATALOG_URL")
WAREHOUSE_VARIABLE = "LSM_WAREHOUSE"
_SQLITE, _JDBC_SQLITE = "sqlite:///", "jdbc:sqlite:"


class Call:
    """The global options of one run of `lsm`; commands get it as their first argument."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self.catalog_given: str | None = None
        self.key_given: str | None = None
        self.warehouse_given: str | None = None
        self.table_given: str | None = None
        self.as_json = False
        self.quiet = False
        self.debug = False
        self.open = ExitStack()
        self._catalogs: dict[Executor | None, Catalog] = {}

    @property
    def out(self) -> "Output":
        """The output of results."""
        from lsm_engine.cli.output import Output  # noqa: PLC0415 -- help needs no Arrow

        return Output(as_json=self.as_json, quiet=self.quiet)

    @property
    def rows_shown(self) -> int | None:
        """The number of rows that are printed by default; None, for a pipe and for JSON: all."""
        return None if self.as_json or not sys.stdout.isatty() else ROWS_SHOWN

    @property
    def warehouse(self) -> str:
        """Where tables lie: --warehouse, LSM_WAREHOUSE, or ./lake."""
        location = self.warehouse_given or self._environment.get(WAREHOUSE_VARIABLE) or "lake"
        return engine.absolute_warehouse(location)

    @property
    def _catalog_named(self) -> str | None:
        variables = (self._environment.get(variable) for variable in CATALOG_VARIABLES)
        return self.catalog_given or next(filter(None, variables), None)

    @property
    def catalog_url(self) -> str:
        """The catalog: --catalog, LSM_CATALOG, or catalog.db in the warehouse.

        Of a warehouse with a scheme: a file below ./lake that is named after it.
        """
        url = self._catalog_named
        if url is None:
            return engine.default_catalog_url(self.warehouse)
        # A path is what people have at hand for a database file; a URL has a scheme.
        is_url = "://" in url or url.startswith("jdbc:")
        return url if is_url else f"{_SQLITE}{os.path.abspath(url)}"

    def line(self, words: str) -> str:
        """Return a command line that does to this catalog what this one does: `lsm --warehouse w tables`."""
        values = (
            ("--catalog", self.catalog_given),
            ("--catalog-key", self.key_given),
            ("--warehouse", self.warehouse_given),
        )
        options = [shlex.join((name, value)) for name, value in values if value]
        return " ".join(["lsm", *options, words])

    def catalog(self, *, create: bool = False, executor: "Executor | None" = None) -> "Catalog":
        """Open the catalog, made if it does not exist and `create`.

        A warehouse that others made has tables and no catalog of ours: these tables are named in
        memory, for this command. NotFoundError if there is neither, or if a catalog was named that
        does not exist: a typing error there must not write without lineage.
        """
        # A verb that creates tables may make the catalog as well.
        if create:
            return self._open_catalog(self.catalog_url, executor)
        if executor not in self._catalogs:
            self._catalogs[executor] = self._existing_catalog(executor)
        return self._catalogs[executor]

    def _existing_catalog(self, executor: "Executor | None") -> "Catalog":
        if not self._is_missing:
            return self._open_catalog(self.catalog_url, executor)
        # A catalog that was named explicitly must exist.
        if self._catalog_named is not None:
            raise engine.NotFoundError(
                f"the catalog {self._catalog_named} does not exist, or is empty: correct --catalog or "
                f"LSM_CATALOG; or {self.line('catalog rebuild')} makes it of the tables in the warehouse, "
                "lsm create with a first table",
                kind=engine.ErrorKind.NO_SUCH_DATABASE,
                catalog=self.catalog_url,
            )
        catalog = self._named_in_memory(executor)
        rebuild = self.line("catalog rebuild")
        self.out.note(
            f"no catalog here: the tables found in {self.warehouse} are shown; {rebuild} makes a catalog",
            rebuild,
        )
        return catalog

    def catalog_to_rebuild(self) -> "tuple[Catalog, str | None]":
        """Open the catalog, made where there are tables, and return where its damaged file was moved to.

        NotFoundError if there is neither a catalog nor a table.
        """
        aside = engine.set_damaged_file_aside(self.catalog_url)
        if self._is_missing and aside is None:
            self._named_in_memory(None)
        return self._open_catalog(self.catalog_url, None), aside

    @property
    def _is_missing(self) -> bool:
        """Whether there is no catalog's file, or an empty one, which holds no name."""
        url = self.catalog_url
        file = url.removeprefix(_SQLITE).removeprefix(_JDBC_SQLITE).removeprefix("file:")
        file = file.partition("?")[0]
        # Only a SQLite catalog is a file that can be missing.
        if not url.startswith((_SQLITE, _JDBC_SQLITE)) or file in ("", ":memory:"):
            return False
        path = Path(file)
        return not path.exists() or (path.is_file() and path.stat().st_size == 0)

    def _named_in_memory(self, executor: "Executor | None") -> "Catalog":
        if "://" in self.warehouse or Path(self.warehouse).is_dir():
            catalog = self._open_catalog("sqlite://", executor)
            # Without any table the directory is hardly a warehouse.
            if catalog.register_found_tables():
                return catalog
        raise engine.NotFoundError(
            f"there is no catalog here yet, and no table of the form {self.warehouse}/DATABASE.db/TABLE; "
            f"{self._instead()}",
            kind=engine.ErrorKind.NO_SUCH_DATABASE,
            catalog=self.catalog_url,
        )

    def _instead(self) -> str:
        """Return what may have been meant by a warehouse in which there is nothing.

        In a store the names tell: no request can list what is above a prefix that may be read.
        """
        place = self.warehouse.rstrip("/")
        house, _, name = place.rpartition("/")
        above, _, database = house.rpartition("/")
        is_remote, path = "://" in place, Path(self.warehouse)
        if database.endswith(".db") if is_remote else (path / "schema" / "schema-0").is_file():
            table = shlex.join(("lsm", "show", "snapshots", place))
            return (
                f"it is a table itself: {table} looks at it, {_tables_of(above)} at its warehouse"
            )
        if name.endswith(".db") if is_remote else any(path.glob("*/schema/schema-0")):
            return f"it is a database: {_tables_of(house)} looks at the warehouse that it is in"
        if not is_remote and path.exists() and not path.is_dir():
            return "it is a file; --warehouse names a directory"
        return "'lsm create' makes one, --catalog and --warehouse name others"

    def _open_catalog(self, url: str, executor: "Executor | None") -> "Catalog":
        location = self.warehouse_given or self._environment.get(WAREHOUSE_VARIABLE)
        catalog = engine.open_catalog(
            url,
            # A catalog of other clients knows its warehouse.
            warehouse=self.warehouse if location or self._catalog_named is None else None,
            catalog_key=self.key_given,
            executor=executor,
        )
        return self.open.enter_context(catalog)

    def table(self, name: str, *, executor: "Executor | None" = None) -> "Table":
        """Open a table by its catalog name, or, if `name` is a path, by its directory.

        "shop.orders@fix" is branch fix of shop.orders.
        """
        self.table_given = name
        # A path needs no catalog, and no catalog records what is done there.
        if is_path(name):
            return engine.open_table(engine.absolute_warehouse(name), executor=executor)
        self.table_given, _, branch = name.partition("@")
        main_table = self.catalog(executor=executor).table(self.table_given)
        return main_table.branch(branch) if branch else main_table

    def catalog_name(self, name: str) -> str:
        """Return a catalog name; a usage error for a path, which no catalog knows."""
        if is_path(name):
            raise click.UsageError(
                "this needs a table's name in the catalog, such as shop.orders, not a path"
            )
        return name

    def tables_named(self, names: Iterable[str]) -> list[str]:
        """Return the tables that names of tables and of databases stand for, in order; paths as they are."""
        tables: list[str] = []
        for name in names:
            if is_path(name) or "." in name:
                tables.append(name)
            else:
                tables += [f"{name}.{table}" for table in self.catalog().list_tables(name)]
        return tables


def _tables_of(warehouse: str) -> str:
    return shlex.join(("lsm", "--warehouse", warehouse, "tables"))


def is_path(name: str) -> bool:
    """Whether a TABLE argument is a directory: names never hold a separator."""
    return "/" in name or os.sep in name or name in (".", "..")


pass_call = click.make_pass_decorator(Call)
