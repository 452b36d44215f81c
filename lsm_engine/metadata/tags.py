"""Tags: named snapshots, one file each."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from lsm_engine.base.errors import (
    AlreadyExistsError,
    CorruptFileError,
    ErrorKind,
    NotFoundError,
    StorageError,
)
from lsm_engine.base.names import did_you_mean
from lsm_engine.format.documents import decode_tag, encode_tag, named_in
from lsm_engine.format.json_object import READ_MAX
from lsm_engine.format.snapshot import Snapshot
from lsm_engine.format.tag import Tag
from lsm_engine.metadata.publishing import deleted, published, replaced, stable_listing, unclaimed
from lsm_engine.planning.names import checked_tag_name
from lsm_engine.storage.bulk import forget_gathered, read_many
from lsm_engine.storage.file_io import FileIO
from lsm_engine.storage.paths import TAG_PREFIX, TablePaths

_RACES = 10  # times that a reader follows tags that come and go


class TagStore:
    """The tags of one table or branch (TagManager)."""

    def __init__(
        self,
        file_io: FileIO,
        paths: TablePaths,
        of_table: Callable[[Snapshot | None], None] = lambda _: None,
    ) -> None:
        """`of_table`: as of the store of snapshots; asked of a tag that is to be read."""
        self._of_table = of_table
        self._file_io = file_io
        self._paths = paths

    def create(self, tag: Tag, *, numeric: bool = False) -> Tag:
        """Make a tag, and return it as it is stored; of any number of makers of one name one succeeds.

        Raises InvalidInputError for names that other clients or file systems cannot hold, and
        AlreadyExistsError if the name is taken. `numeric` allows numbers: tags that make themselves.
        """
        path = self._paths.tag_file(checked_tag_name(tag.name, numeric=numeric))
        data = encode_tag(tag, self._paths.branch_name)
        if not published(self._file_io, path, data):
            raise AlreadyExistsError(
                f"tag {tag.name!r} exists; delete it first, or choose another name", tag=tag.name
            )
        return replace(tag, content=data)

    def replace(self, old: Tag, new: Tag) -> Tag | None:
        """Move a tag, as it was read or made, to another snapshot or lifetime, in one atomic step.

        Returns the tag as it is stored; None, and no change, where its file has changed or is deleted.
        """
        path = self._paths.tag_file(checked_tag_name(new.name, numeric=True))
        data = encode_tag(new, self._paths.branch_name)
        is_done = replaced(self._file_io, path, data, expected=self._content(old))
        return replace(new, content=data) if is_done else None

    def delete(self, tag: Tag) -> bool:
        """Delete a tag as it was read or made, and nothing that it pins.

        False, and no change, where its file has changed since or is deleted.
        """
        path = self._paths.tag_file(tag.name)
        return deleted(self._file_io, path, expected=self._content(tag))

    def delete_unread(self, name: str) -> bool:
        """Delete a tag whose file cannot be read; False, and no change, if it changes meanwhile."""
        path = self._paths.tag_file(name)
        try:
            content = self._file_io.read(path)
        except NotFoundError:
            # Deleted since: nothing is left to do.
            return False
        return deleted(self._file_io, path, expected=content)

    def _content(self, tag: Tag) -> bytes:
        return encode_tag(tag, self._paths.branch_name) if tag.content is None else tag.content

    def exists(self, name: str) -> bool:
        """Whether there is such a tag."""
        return self._file_io.exists(self._paths.tag_file(name))

    def names(self) -> list[str]:
        """Return the names of all tags, sorted."""
        return sorted(
            status.name.removeprefix(TAG_PREFIX)
            for status in self._file_io.list(self._paths.tag_directory)
            if status.name.startswith(TAG_PREFIX) and not status.is_directory
        )

    def stable_listing(self) -> list[Tag]:
        """Return every tag, from a listing that was asked twice, as maintenance needs it.

        Lists again when a listed tag no longer exists: it may have been given another name.
        """
        for _ in range(_RACES):
            names = sorted(
                status.name.removeprefix(TAG_PREFIX)
                for status in stable_listing(self._file_io, self._paths.tag_directory)
                if status.name.startswith(TAG_PREFIX) and not status.is_directory
            )
            files = self._files(names)
            # A tag that vanished may have been renamed, and its new name was not in the listing.
            if None not in files.values():
                return [*self._tags_in(files)]
            forget_gathered(self._file_io, map(self._paths.tag_file, names))
        raise StorageError(
            "tags keep vanishing while they are read; nothing was deleted, try again",
            directory=self._paths.tag_directory,
        )

    def find(self, name: str) -> Tag | None:
        """Return a tag, or None; raises CorruptFileError if it cannot be read."""
        path = self._paths.tag_file(name)
        try:
            data = self._file_io.read(path, length=READ_MAX)
        except NotFoundError:
            return None
        document = unclaimed(self._file_io, self._paths, path, data)
        return None if document is None else self._decoded(name, document)

    def require_no_copy(self, name: str) -> None:
        """Raise CorruptFileError where another tag's file is a copy of this one's.

        Once this one is deleted it would pass for it, renamed by another client.
        """
        names_by_path = {
            self._paths.tag_file(listed): listed for listed in self.names() if listed != name
        }
        for path, data in read_many(self._file_io, names_by_path, READ_MAX):
            if (
                data is not None
                and self._names(data, path) == name
                and self._is_of(name, self._paths.branch_name, names_by_path[path], data)
            ):
                raise CorruptFileError(
                    f"tag {names_by_path[path]!r} has the file of tag {name!r}, and would be read as that; delete "
                    f"{names_by_path[path]!r} first, or restore its file",
                    file=path,
                )

    def load(self, name: str) -> Tag:
        """Return a tag; raises NotFoundError with the nearest name there is."""
        tag = self.find(name)
        self._of_table(None if tag is None else tag.snapshot)
        if tag is None:
            hint = did_you_mean(name, self.names())
            if name.isdecimal():
                hint = f"; a snapshot is named by its id as a number, {name} without quotes{hint}"
            raise NotFoundError(f"no tag {name!r}{hint}", kind=ErrorKind.NO_SUCH_TAG, tag=name)
        return tag

    def list(self) -> list[Tag]:
        """Return every tag by snapshot, then name. One that cannot be read is an error, not a gap."""
        tags = self._tags_in(self._files(self.names()))
        return sorted(tags, key=lambda tag: (tag.snapshot.id, tag.name))

    def _files(self, names: Sequence[str]) -> dict[str, bytes | None]:
        """Return the contents of tags by name, None for one that was deleted since; without those not made yet."""
        path_names = {self._paths.tag_file(name): name for name in names}
        files: dict[str, bytes | None] = {}
        for path, data in read_many(self._file_io, path_names, READ_MAX):
            document = data and unclaimed(self._file_io, self._paths, path, data)
            # A claim without former content is a tag that a branch is still being made with.
            if data is None or document is not None:
                files[path_names[path]] = document
        return files

    def _tags_in(self, files: Mapping[str, bytes | None]) -> Sequence[Tag]:
        return [self._decoded(name, data) for name, data in files.items() if data is not None]

    def _decoded(self, name: str, data: bytes) -> Tag:
        return decode_tag(
            data,
            name=name,
            file_name=self._paths.tag_file(name),
            is_of=lambda origin_name, branch: self._is_of(origin_name, branch, name, data),
        )

    def _names(self, data: bytes, path: str) -> str | None:
        """Return the name in a tag's file; None also where it cannot be read."""
        with suppress(CorruptFileError):
            return named_in(data, file_name=path)
        return None

    def _is_of(self, origin_name: str, branch: str, name: str, data: bytes) -> bool:
        """Whether a tag's file is the copy of another's, or was exchanged with it.

        Other clients rename the file of a tag and leave in it what we wrote: then there is no other, neither here
        nor in the branch that wrote it.
        """
        origin = TablePaths(root=self._paths.root, branch_name=branch)
        for path in {self._paths.tag_file(origin_name), origin.tag_file(origin_name)}:
            with suppress(NotFoundError, CorruptFileError):
                origin_data = self._file_io.read(path, length=READ_MAX)
                if origin_data == data or named_in(origin_data, file_name=path) == name:
                    return True
        return False
