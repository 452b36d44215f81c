"""Each mode is decided in one place: elsewhere code asks its policy, or matches every member."""

import ast
from collections.abc import Iterable, Iterator

import pytest

from lsm_engine.options import modes
from tests.tidy.sources import nodes

POLICIES = ("MergeEngine", "BucketMode", "ChangelogProducer", "FileFormat", "IndexType")
POLICIES += ("LookupFileType",)
HOME = "lsm_engine/options/modes.py"


def is_member(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in POLICIES
        and node.attr.isupper()
    )


def comparisons(inside: Iterable[ast.AST]) -> Iterator[int]:
    for node in inside:
        if isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                is_list = isinstance(part, ast.Tuple | ast.List | ast.Set)
                if any(is_member(value) for value in (part.elts if is_list else [part])):
                    yield node.lineno


def open_matches(inside: Iterable[ast.AST]) -> Iterator[int]:
    """Matches on members that leave the others to `case _`, or to nobody by a guard."""
    for node in inside:
        if not isinstance(node, ast.Match):
            continue
        values = [one for case in node.cases for one in ast.walk(case.pattern)]
        if not any(isinstance(one, ast.MatchValue) and is_member(one.value) for one in values):
            continue
        for case in node.cases:
            wild = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            if wild or case.guard is not None:
                yield node.lineno


def test_no_mode_is_compared_outside_of_its_home() -> None:
    wrong = [
        f"{name}:{line}"
        for name, inside in nodes().items()
        if name != HOME
        for line in [*comparisons(inside), *open_matches(inside)]
    ]
    assert not wrong


@pytest.mark.parametrize("text", ["x is MergeEngine.FIRST_ROW", "x in (BucketMode.FIXED,)"])
def test_a_comparison_is_found(text: str) -> None:
    assert list(comparisons(ast.walk(ast.parse(text))))


def test_a_match_that_leaves_members_to_anybody_is_found() -> None:
    text = "match x:\n    case FileFormat.ORC:\n        pass\n    case _:\n        pass\n"
    assert list(open_matches(ast.walk(ast.parse(text))))


@pytest.mark.parametrize("name", POLICIES)
def test_every_member_has_a_policy(name: str) -> None:
    members = list(getattr(modes, name))
    assert len({member.policy for member in members}) > 1
    assert all(member.policy == member.policy for member in members)
