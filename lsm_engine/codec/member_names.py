"""Members of a JSON document whose names were damaged: unknown members are ignored, these are not.

Newer writers add members, so an unknown name is no error by itself. One flipped bit in a name makes a
member unknown, too: it is then taken for the member that it resembles, which is missing.
"""

from collections.abc import Collection, Mapping
from typing import Any

from lsm_engine.base.errors import CorruptFileError

OWN_NAME = "lsmName"
"""Member of tags and consumers: whose file it is, as nothing else in it says so."""
OWN_BRANCH = "lsmBranch"
"""Member of a branch's tags: which branch wrote it."""
OWN_ID = "lsmTagId"
"""Member of tags: another one with each change, so that no two contents of a tag are the same."""
OWN_CONSUMER_ID = "lsmConsumerId"
"""Member of consumers: another one with each move, as of tags."""
TAG_ONLY_MEMBERS = frozenset({"tagCreateTime", "tagTimeRetained", OWN_NAME, OWN_BRANCH, OWN_ID})
SCHEMA_MEMBERS = frozenset(
    {
        "version", "id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options",
        "comment", "timeMillis",
    }
)  # fmt: skip
FIELD_MEMBERS = frozenset({"id", "name", "type", "description", "defaultValue"})
CONSUMER_MEMBERS = frozenset({"nextSnapshot", OWN_NAME, OWN_CONSUMER_ID})
_SHORT = 4
"""Names of up to so many characters resemble another only where one character differs."""


def refuse_damaged_names(
    members: Mapping[str, Any], expected_names: Collection[str], *, file_name: str
) -> None:
    """Raise CorruptFileError for an unknown member whose name resembles a known one that is missing."""
    unknown = members.keys() - expected_names
    if not unknown:
        return
    missing = sorted(set(expected_names) - members.keys())
    for name in sorted(unknown):
        for missing_name in missing:
            if _resembles(name, missing_name):
                raise CorruptFileError(
                    f"member {name!r} seems to be {missing_name!r} with damage to its name; restore the file",
                    file=file_name,
                    member=name,
                )


def _resembles(name: str, missing_name: str) -> bool:
    """Whether a few flipped bits, other case or swapped characters lead from one name to the other."""
    if name.lower() == missing_name.lower():
        return True
    if len(name) != len(missing_name):
        return False
    differing = sum(
        character != expected for character, expected in zip(name, missing_name, strict=True)
    )
    if len(missing_name) <= _SHORT:
        return differing == 1
    return differing <= 2 or sorted(name) == sorted(missing_name)
