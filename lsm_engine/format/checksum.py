"""Checksums of whole files: a CRC-32, stored by the document that references the file, to detect damage.

Every single flipped bit and every burst of up to 32 bits changes a CRC-32; of other damage one case in
four thousand million passes. ISA-L computes several times as much of it a second as zlib (decision 38).
"""

from typing import Any

from isal.isal_zlib import crc32

from lsm_engine.base.errors import CorruptFileError

FORM = "crc32"


def checksum_of(data: Any, before: int = 0) -> int:
    """Return the checksum of bytes that follow others, whose checksum is `before`."""
    return crc32(data, before)


def check_bytes(data: Any, expected: int | None, *, file_name: str) -> None:
    """Raise CorruptFileError if bytes are not those of the checksum; None: nothing is known."""
    if expected is not None and crc32(data) != expected:
        raise damaged(file_name, crc32(data), expected)


def damaged(file_name: str, actual: int, expected: int) -> CorruptFileError:
    """Return the error for a file that does not match its stored checksum."""
    return CorruptFileError(
        "the file is damaged, or is not the one that was written: its checksum differs; restore it, "
        "or run verify to see what depends on it",
        file=file_name,
        checksum=checksum_text(actual),
        expected=checksum_text(expected),
    )


def checksum_text(checksum: int) -> str:
    """Return a checksum as eight hexadecimal digits."""
    return f"{checksum:08x}"
