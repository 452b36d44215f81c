"""Hooks of mkdocs for the documentation site.

They add pages from outside lsm_engine/docs and rewrite the links to them. They generate the API reference and the
reference of the command line from the sources.
"""

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import lsm_engine
from lsm_engine.cli.main import lsm

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent.parent
ASSETS = ROOT / "lsm_assets" / "docs"
ELSEWHERE = {
    "assets.md": ASSETS / "assets.md",
    "dagster-tasks.md": ASSETS / "how-to.md",
    **{f"pictures/{path.name}": path for path in sorted((ASSETS / "pictures").glob("*.png"))},
    "about.md": ROOT / "README.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "changes.md": ROOT / "CHANGELOG.md",
    "security.md": ROOT / "SECURITY.md",
    "LICENSE": ROOT / "LICENSE",
}
"""Files below other folders of the repository, by their place on the site."""

PLACES = {path: place for place, path in ELSEWHERE.items()} | {
    DOCS / "decisions": "decisions/index.md"
}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)")

API = {
    "Opening, files, functions": ("functions", ["open_catalog", "open_table", "read_files", "write_file", "FileOptions", "RowFiles", "doctor"]),
    "Catalog": ("catalog", ["Catalog"]),
    "Table": ("table", ["Table"]),
    "Scan and filters": ("scan", ["Scan", "col", "Predicate"]),
    "Merge": ("merge", ["dml.merge_builder.Merge"]),
    "StreamWriter": ("writer", ["StreamWriter", "CompactionMetrics"]),
    "TableQuery": ("query", ["lookup.lookup.TableQuery"]),
    "Tags": ("tags", ["Tags", "Tag"]),
    "Branches": ("branches", ["Branches"]),
    "Changes, consumers": ("changes", ["Changes", "Follower", "StartMode", "ChangeMode", "Consumers"]),
    "Inspect": ("inspect", ["Inspect"]),
    "Maintenance": ("maintenance", ["Maintenance"]),
    "Schemas and their changes": ("schemas", [
        *("AddColumn", "DropColumn", "RenameColumn", "MoveColumn", "ChangeType", "SetNullable"),
        *("SetColumnComment", "SetColumnDefault", "SetComment", "SetOption", "RemoveOption"),
        *("TableSchema", "DataField", "ScalarType", "columns_of_text", "type_of_text", "type_text"),
    ]),
    "Results and reports": ("results", [
        *("Snapshot", "WriteResult", "RowCounts", "row_counts_of", "CommitOptions", "ExpiryReport", "OrphanReport"),
        *("VerifyReport", "DamagedFile", "HealthReport", "RepairReport", "RestoreReport", "ForgetPlan", "ForgetReport"),
        *("planning.history.KeyExplanation", "FileExplanation", "SnapshotDiff", "RetentionSimulation", "IcebergState"),
    ]),
    "Errors": ("errors", [
        *("LsmError", "AlreadyExistsError", "CommitConflictError", "CommitUnknownError"),
        *("CorruptFileError", "ExpiredError", "InvalidInputError", "InvalidOptionError"),
        *("NotFoundError", "StorageError", "UnsafePathError", "UnsupportedError", "ErrorKind"),
    ]),
}  # fmt: skip
"""Pages of the API reference: the title, the file's name and the names of `lsm_engine`; all others are for extensions."""

INTERNAL = {
    "Catalog": ("name_table", "newest_state", "newest_states", "table_in_warehouse"),
    "Scan": ("parquet_files", "reads_all", "names_keys", "untagged", "narrowed"),
    "TableQuery": ("lookup_at", "locate"),
    "TableSchema": ("written_fields", "select_read"),
    "Snapshot": ("checksum_of",),
    "VerifyReport": ("with_sources",),
    "WriteResult": ("from_snapshot", "checksum_of"),
}
"""Members of public classes that only the engine itself calls."""

DAGSTER = [
    *("factory.lsm_table_assets", "factory.lsm_definitions", "declaration.TableDeclaration"),
    *("versions.Upsert", "versions.Delete", "versions.Overwrite"),
    *("io_manager.LsmIOManager", "component.LsmTableComponent", "translator.LsmTranslator"),
    "pinning.input_snapshot",
]
"""Names of `lsm_assets` that its page uses."""


GUIDES = {
    **dict.fromkeys(("troubleshooting.md", "guarantees.md", "history.md", "rows-by-key.md"), 8),
    **dict.fromkeys(
        (
            "schema-changes.md",
            "files.md",
            "buckets.md",
            "forget.md",
            "maintenance.md",
            "object-stores.md",
        ),
        6,
    ),
    **dict.fromkeys(
        (
            "python.md",
            "types.md",
            "sizing.md",
            "filters.md",
            "installing.md",
            "recipes/exactly-once.md",
        ),
        5,
    ),
    "spark.md": 7,
    "iceberg.md": 5,
    **dict.fromkeys(
        ("dagster-tasks.md", "assets.md", "spark-clusters.md", "semantics.md", "catalog.md"), 1
    ),
    **dict.fromkeys(
        ("index.md", "tour.md", "flights.md", "serve.md", "system-tables.md", "performance.md"), 1
    ),
}
"""How much pages count in the search; those of one task more than those of many."""
NOT_SEARCHED = (
    "decisions/", "testing.md", "contributing.md", "changes.md", "architecture.md", "glossary.md", "performance-details.md",
)  # fmt: skip
"""Pages for those who change the project: a search leads to guides."""
REFERENCES = (
    "api.md",
    "api/",
    "commands.md",
    "options.md",
    "formats.md",
    "commit-protocol.md",
    "about.md",
)


def search_of(place: str) -> dict[str, Any]:
    """How the search treats a page: whether it is left out, and how much it counts."""
    if place.startswith(NOT_SEARCHED):
        return {"exclude": True}
    return {"boost": 0.25 if place.startswith(REFERENCES) else GUIDES.get(place, 3)}


def decisions() -> list[str]:
    """Return the pages of decisions, in order of their numbers."""
    return sorted(path.name for path in (DOCS / "decisions").glob("[0-9]*.md"))


def spark_names() -> list[str]:
    """The names of `lsm_engine.spark`, which is not imported: the site is built without Spark."""
    tree = ast.parse((ROOT / "lsm_engine" / "spark" / "__init__.py").read_text("utf-8"))
    (names,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return list(ast.literal_eval(names))


def examples() -> dict[str, str]:
    """The examples of the API reference, by the page that begins with them; a test runs them."""
    text = (DOCS / "site" / "api-examples.md").read_text("utf-8")
    return dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))


def parameters() -> dict[str, str]:
    """The descriptions of parameters, by `name`, `function.name`, `Class.name` or `Class.method.name`."""
    text = (DOCS / "site" / "parameters.md").read_text("utf-8")
    return dict(re.findall(r"^- `([\w.]+)`: (.+)$", text, re.MULTILINE))


def scopes(owner: str, function: str, name: str) -> tuple[str, ...]:
    """Where the description of a parameter is looked for, in this order."""
    return f"{owner}.{function}.{name}", f"{function}.{name}", f"{owner}.{name}", name


class Parameters(griffe.Extension):
    """Lists the parameters of methods whose docstring does not."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Add the list to the docstring of a function, if all of its parameters have a description."""
        docstring, descriptions = func.docstring, parameters()
        if docstring is None or "Args:" in docstring.value:
            return
        owner = "" if func.parent is None else func.parent.name
        names = [name for parameter in func.parameters if (name := parameter.name) not in SELF]
        places = [
            next((key for key in scopes(owner, func.name, name) if key in descriptions), None)
            for name in names
        ]
        if names and all(places):
            lines = [
                f"    {name}: {descriptions[str(place)]}\n"
                for name, place in zip(names, places, strict=True)
            ]
            docstring.value += "\n\nArgs:\n" + "".join(lines)


SELF = ("self", "cls")


def former_names() -> str:
    """A filter that leaves out the methods of a table that are those of its accessors, under longer names."""
    names = [
        name
        for name, method in vars(lsm_engine.Table).items()
        if callable(method) and not method.__qualname__.startswith("Table.")
    ]
    return f"!^({'|'.join(names)})$"


def directives(names: Iterable[str]) -> str:
    """The directives from which mkdocstrings makes a page."""
    return "".join(
        f"::: {name}\n    options: {{heading_level: 2, filters: {filters(name)}}}\n\n" for name in names
    )  # fmt: skip


def filters(name: str) -> str:
    """The members that the page of a class leaves out."""
    hidden = "|".join(INTERNAL.get(name.rpartition(".")[2], ()))
    former = [former_names()] if name == "lsm_engine.Table" else []
    return json.dumps(["!^_", "!^session$", *former, *([f"!^({hidden})$"] if hidden else [])])


def api_pages() -> dict[str, tuple[str, str]]:
    """The pages of the API reference: title and Markdown, by place."""
    listed = {name for _, names in API.values() for name in names}
    left_out = {"__version__", "core_options"}
    unlisted = [
        name
        for name in lsm_engine.__all__
        if name not in listed | left_out and (name.islower() or not name.isupper())
    ]
    pages = {
        f"api/{place}.md": (title, [f"lsm_engine.{name}" for name in names])
        for title, (place, names) in API.items()
    }
    pages["api/extensions.md"] = ("For extensions", [f"lsm_engine.{name}" for name in unlisted])
    pages["api/spark.md"] = ("On Spark", [f"lsm_engine.spark.{name}" for name in spark_names()])
    pages["api/dagster.md"] = ("In Dagster", [f"lsm_assets.{name}" for name in DAGSTER])
    example_texts = examples()
    return {
        place: (
            title,
            f"# {title}\n\n{example_texts.get(Path(place).stem, '')}\n\n{directives(names)}",
        )
        for place, (title, names) in pages.items()
    }


def api_page(pages: Mapping[str, tuple[str, str]]) -> str:
    """The list of the pages of the API reference."""
    return (
        "# Python API\n\nNames are those of `import lsm_engine as lsm`, but on the last two pages, where they are "
        "those of `lsm_engine.spark` and of modules of `lsm_assets`. A table has its operations on tags, branches, "
        "changes and the like in accessors, such as `table.tags.create`.\n\n"
        + "".join(f"- [{title}]({place})\n" for place, (title, _) in pages.items())
    )


def verbs(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each verb of the command line with the text of its `--help`."""
    context = click.Context(command, info_name=" ".join(words), terminal_width=88)
    yield " ".join(words), command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            if subcommand is not None and not subcommand.hidden:
                yield from verbs(subcommand, (*words, name))


def commands_page() -> str:
    """The reference of the command line: what `--help` prints."""
    return "# Command line\n\nWhat `--help` prints, verb by verb.\n" + "".join(
        f"\n## {name}\n\n```text\n{help_text}\n```\n" for name, help_text in verbs(lsm, ("lsm",))
    )


def on_config(config: MkDocsConfig) -> None:
    """Put every decision and every page of the API below the entry of their list."""
    project: list[Any] = next(entry["Project"] for entry in config.nav if "Project" in entry)
    reference: list[Any] = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    reference[0] = {
        "Python API": ["api.md", *({title: place} for place, (title, _) in api_pages().items())]
    }
    project[-1] = {
        "Decisions": ["decisions/index.md", *(f"decisions/{page}" for page in decisions())]
    }


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages from elsewhere, and the generated ones."""
    for place, path in ELSEWHERE.items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    pages = api_pages()
    generated = {
        "api.md": api_page(pages),
        "commands.md": commands_page(),
        **{place: text for place, (_, text) in pages.items()},
    }
    for place, text in generated.items():
        files.append(File.generated(config, place, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links to files that have another place on the site."""
    page_path = page.file.src_uri
    page.meta["search"] = search_of(page_path)
    source = ELSEWHERE.get(page_path, DOCS / page_path)

    def placed(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / link[1]))
        place = PLACES.get(target)
        if place is None and target.is_relative_to(DOCS) and page_path in ELSEWHERE:
            place = target.relative_to(DOCS).as_posix()
        return link[1] if place is None else os.path.relpath(place, Path(page_path).parent)

    return LINK.sub(placed, markdown)
