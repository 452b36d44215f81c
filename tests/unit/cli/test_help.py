"""The help pages, as text on file. `--rewrite` writes them anew; review the difference."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lsm_engine.cli.main import lsm
from lsm_engine.cli.verb import Verb, VerbGroup

PAGES = Path(__file__).parent / "help"


NO_CONTEXT = click.Context(lsm)


def verbs(group: click.Group = lsm, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name in group.list_commands(NO_CONTEXT):
        command = group.get_command(NO_CONTEXT, name)
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        else:
            yield (*path, name)


def command_of(path: tuple[str, ...]) -> click.Command:
    found: click.Command = lsm
    for name in path:
        assert isinstance(found, click.Group)
        below = found.get_command(NO_CONTEXT, name)
        assert below is not None
        found = below
    return found


@pytest.mark.parametrize("path", list(verbs()), ids=lambda path: " ".join(("lsm", *path)))
def test_page(shell, rewrite: bool, path: tuple[str, ...]) -> None:
    shell.environment["COLUMNS"] = "100"
    page = shell(*path, "--help").stdout
    file = PAGES / f"{'-'.join(('lsm', *path))}.txt"
    if rewrite:
        PAGES.mkdir(exist_ok=True)
        file.write_text(page)
    printed = file.read_text() if file.exists() else ""
    assert page == printed, (
        "run pytest tests/unit/cli/test_help.py --rewrite and review the difference"
    )


def test_no_page_is_forgotten() -> None:
    names = {f"{'-'.join(('lsm', *path))}.txt" for path in verbs()}
    assert {file.name for file in PAGES.iterdir()} == names, (
        "delete the page of a verb that is no more"
    )


@pytest.mark.parametrize(
    "path", [path for path in verbs() if isinstance(command_of(path), Verb)], ids=" ".join
)
def test_every_verb_teaches_by_an_example(path: tuple[str, ...]) -> None:
    command = command_of(path)
    assert isinstance(command, Verb)
    assert any(f"lsm {' '.join(path)}" in line for line in command.examples)
    assert all(len(line) < 96 for line in command.examples)
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"--{parameter.name} of {path}"


def test_the_page_of_all_verbs_has_one_line_for_each() -> None:
    for lines in lsm.lines.items():
        assert len("".join(lines)) < 76, lines
        assert lines[1].endswith("."), lines


def test_former_names_lead_to_verbs() -> None:
    for group in (lsm, command_of(("lineage",))):
        assert isinstance(group, VerbGroup)
        assert all(group.get_command(NO_CONTEXT, name) for name in group.former)
