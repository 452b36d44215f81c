"""The cache of environments, with something cheap in place of an environment. Needs no client."""

import json
import threading
from pathlib import Path

import pytest

from tests.interop.environments import MARKER, cache_folder, made_once

FACTS: dict[str, object] = {"requirements": ["nothing==1"]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LSM_INTEROP_CACHE", str(tmp_path / "cache"))


class Maker:
    """Fills a folder slowly and counts how often it was asked to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.folders: list[Path] = []
        self.fails = fails

    def __call__(self, folder: Path) -> None:
        self.folders.append(folder)
        assert list(folder.iterdir()) == []
        (folder / "half").touch()
        threading.Event().wait(0.2)
        if self.fails:
            raise RuntimeError("no network")
        (folder / "whole").touch()


def test_many_ask_and_one_makes():
    maker = Maker()
    found: list[Path] = []
    askers = [
        threading.Thread(target=lambda: found.append(made_once("thing", FACTS, maker)))
        for _ in range(5)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(maker.folders) == 1
    assert found == maker.folders * 5
    assert json.loads((found[0] / MARKER).read_text())["requirements"] == ["nothing==1"]


def test_half_made_is_made_again():
    with pytest.raises(RuntimeError):
        made_once("thing", FACTS, Maker(fails=True))
    again = Maker()
    folder = made_once("thing", FACTS, again)
    assert again.folders == [folder]
    assert (folder / "whole").exists()


def test_other_versions_get_another_folder():
    other = {"requirements": ["nothing==2"]}
    assert made_once("thing", FACTS, Maker()) != made_once("thing", other, Maker())
    assert all(folder.parent == cache_folder() for folder in cache_folder().iterdir())
