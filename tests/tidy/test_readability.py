"""Ceilings on what makes the source hard to read. A change may lower one of them, and never raises it."""

import ast
import collections
from collections.abc import Iterator

from tests.tidy.sources import nodes

PRONOUNS = frozenset(
    [
        "found",
        "one",
        "ones",
        "each",
        "at",
        "made",
        "known",
        "kept",
        "given",
        "left",
        "wanted",
        "there",
        "of",
        "its",
        "it",
        "them",
        "those",
        "these",
        "told",
        "gone",
        "whole",
        "here",
        "taken",
        "met",
        "seen",
        "asked",
        "put",
        "held",
        "due",
        "beside",
        "together",
        "afar",
        "far",
        "near",
        "other",
        "others",
        "rest",
        "what",
        "which",
        "who",
        "where",
        "how",
        "many",
        "much",
        "more",
        "less",
        "few",
        "some",
        "any",
        "every",
        "nothing",
        "thing",
        "things",
        "stuff",
        "plain",
        "named",
        "opened",
        "changed",
    ]
)
"""Words that say nothing of what a variable holds; `manifest`, `entry` and `index` do."""

VAGUE_NAMES_MAX = 88
FUNCTIONS_OF_MANY_PARAMETERS_MAX = 27
PARAMETERS_MAX = 6
MODULES_OF_ONE_IMPORTER_MAX = 46
MODULES_MAX = 400  # progress in notebooks is one; change events by key and sequence are one; six each are Iceberg metadata and its acts, and the server, three file indexes, one the server's client, two machine code and Dagster internals


def bound_names(path: str) -> Iterator[str]:
    for node in nodes()[path]:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def imported_names(path: str) -> Iterator[str]:
    for node in nodes()[path]:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def has_many_parameters(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"])) > PARAMETERS_MAX


def test_names_are_nouns_of_what_they_hold() -> None:
    words = collections.Counter(
        name for path in nodes() for name in bound_names(path) if name.strip("_") in PRONOUNS
    )
    assert words.total() <= VAGUE_NAMES_MAX, words.most_common(10)


def test_functions_take_few_parameters() -> None:
    long = [
        f"{path}:{node.lineno}"
        for path, inside in nodes().items()
        for node in inside
        if has_many_parameters(node)
    ]
    assert len(long) <= FUNCTIONS_OF_MANY_PARAMETERS_MAX, long


def test_modules_are_shared() -> None:
    """A module that a single other one imports belongs into that one, unless it is a noun of its own."""
    paths = {
        path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): path
        for path in nodes()
    }
    importers = collections.defaultdict(set)
    for name, path in paths.items():
        for target in imported_names(path):
            importers[target].add(name)
    single = [name for name in paths if len(importers[name] - {name}) == 1]
    assert len(single) <= MODULES_OF_ONE_IMPORTER_MAX
    assert len(paths) <= MODULES_MAX
