"""Never write what readers refuse: the caps of readers, applied to what is about to be published."""

from collections.abc import Callable

from lsm_engine.base.errors import CorruptFileError, InvalidInputError, UnsupportedError
from lsm_engine.codec.avro_container import (
    MANIFEST_LIMITS,
    EncodedContainer,
    read_container,
    unpacked,
)

_NEW = "a file that is not written yet"


def readable(data: bytes, decode: Callable[..., object]) -> bytes:
    """Return `data`, which `decode(data, file_name=...)` takes.

    Raises InvalidInputError where it does not: then nothing may be written.
    """
    try:
        decode(data, file_name=_NEW)
    except (CorruptFileError, UnsupportedError) as refusal:
        raise InvalidInputError(
            f"nothing was written, as readers would refuse it: {refusal.message}",
            member=refusal.facts.get("member"),
        ) from refusal
    return data


def check_readable_avro(data: bytes, decode: Callable[..., object], *, file_name: str) -> None:
    """Raise InvalidInputError for a metadata file that readers would refuse.

    Its blocks are unfolded under the readers' limits. Of a small file that is all there is to find;
    a larger one, which may have more list items than allowed, is decoded. One that was just made of so
    little that it is within every limit is not looked at.
    """
    if isinstance(data, EncodedContainer) and data.content_bytes <= MANIFEST_LIMITS.items:
        return

    def unfold(data: bytes, *, file_name: str) -> None:
        size = sum(len(block) for _, block in unpacked(read_container(data, file_name=file_name)))
        if size > MANIFEST_LIMITS.items:  # an item takes a byte at least
            decode(data, file_name=file_name)

    try:
        readable(data, unfold)
    except InvalidInputError as refusal:
        raise InvalidInputError(
            f"{refusal.message}; are keys, or minima and maxima of columns, very large?",
            file=file_name,
            bytes=len(data),
        ) from refusal
