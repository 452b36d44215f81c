"""One thread per table: histories and numbered calls repeat from run to run."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest

from lsm_engine.base.errors import LsmError
from lsm_engine.format.manifest_file import decode_small_manifests
from lsm_engine.metadata import manifests
from tests.model.world import on_one_thread


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sweeps take minutes to hours: they run when they are asked for by name."""
    if "sweep" in config.getoption("-m"):
        return
    swept = [item for item in items if item.get_closest_marker("sweep")]
    if swept:
        config.hook.pytest_deselected(items=swept)
        items[:] = [item for item in items if item not in swept]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with on_one_thread():
        yield


@pytest.fixture(autouse=True, scope="module")
def _decoded_once() -> Iterator[None]:
    with decoded_once():
        yield


@contextmanager
def decoded_once() -> Iterator[None]:
    """Sweeps read the same few manifests thousands of times: the same bytes are decoded once."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("decode_manifest", "decode_manifest_list", "decode_index_manifest"):
            patch.setattr(manifests, name, remembering(getattr(manifests, name)))
        patch.setattr(manifests, "decode_small_manifests", _decode_small_once)
        yield


def _decode_small_once(files: Mapping[str, bytes]) -> list[pa.Table] | None:
    """Decode small manifests together, those of the same bytes once; an error is raised anew, naming its file."""
    try:
        return _decoded_small(tuple(files.values()))
    except LsmError:
        return decode_small_manifests(files)


@lru_cache(maxsize=2048)
def _decoded_small(contents: tuple[bytes, ...]) -> list[pa.Table] | None:
    return decode_small_manifests({str(place): data for place, data in enumerate(contents)})


def remembering(decode: Callable[..., Any]) -> Callable[..., Any]:
    """The same decoder, with its answers kept by content; an error is raised anew, naming its file."""

    @lru_cache(maxsize=2048)
    def kept(data: bytes, columns: frozenset[str] | None, *named: tuple[str, Any]) -> Any:
        if columns is not None:
            return decode(data, file_name="of any name", columns=columns, **dict(named))
        return decode(data, file_name="of any name", **dict(named))

    def decoded(
        data: bytes, *, file_name: str, columns: Collection[str] | None = None, **named: Any
    ) -> Any:
        try:
            return kept(data, None if columns is None else frozenset(columns), *named.items())
        except LsmError:
            more = {} if columns is None else {"columns": columns}
            return decode(data, file_name=file_name, **more, **named)

    return decoded
