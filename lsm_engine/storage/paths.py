"""Where everything of one table lives, as strings (docs/formats.md, directory layout)."""

from dataclasses import replace

from lsm_engine.base.record import record
from lsm_engine.storage.file_io import check_name

LATEST = "LATEST"
EARLIEST = "EARLIEST"
BEING_DROPPED = ".lsm-being-dropped"  # and the id of the drop
BEING_RENAMED = ".lsm-being-renamed"
SNAPSHOT_PREFIX = "snapshot-"
CHANGELOG_PREFIX = "changelog-"
SCHEMA_PREFIX = "schema-"
TAG_PREFIX = "tag-"
TRASH_PREFIX = "trash-"
BRANCH_PREFIX = "branch-"
CONSUMER_PREFIX = "consumer-"
BUCKET_PREFIX = "bucket-"
POSTPONE_DIRECTORY = "bucket-postpone"
ROOT_DIRECTORIES = ("snapshot", "changelog", "tag", "branch", "consumer", "trash")
"""Those whose files name others, or are obeyed by themselves."""


@record
class TablePaths:
    """Paths of one table (FileStorePathFactory), relative to the storage's root.

    `root` is the table's directory in it, `data_directory` the one below it that has the buckets ("": the same).

    A branch (`branch_name`; "" is main) has schemas, snapshots, changelogs, tags and consumers of its
    own. Manifests and data are the table's. Names that come from stored metadata are checked to be
    one path part: UnsafePathError.
    """

    root: str = ""
    branch_name: str = ""
    data_directory: str = ""

    def at(self, *parts: str) -> str:
        """Return a path below the table's directory; empty parts vanish."""
        return "/".join(part for part in (self.root, *parts) if part)

    def of_branch(self, *parts: str) -> str:
        """Return a path below the directory of what the branch has of its own."""
        if not self.branch_name:
            return self.at(*parts)
        return self.at("branch", check_name(BRANCH_PREFIX + self.branch_name), *parts)

    # Directories.

    @property
    def schema_directory(self) -> str:
        """Holds one file per schema version."""
        return self.of_branch("schema")

    @property
    def snapshot_directory(self) -> str:
        """Holds snapshots and their hints."""
        return self.of_branch("snapshot")

    @property
    def changelog_directory(self) -> str:
        """Holds changelogs that outlive their snapshots."""
        return self.of_branch("changelog")

    @property
    def manifest_directory(self) -> str:
        """Holds manifests, manifest lists and index manifests."""
        return self.at("manifest")

    @property
    def index_directory(self) -> str:
        """Holds deletion vectors and hash indexes."""
        return self.at("index")

    @property
    def statistics_directory(self) -> str:
        """Holds what ANALYZE wrote."""
        return self.at("statistics")

    @property
    def tag_directory(self) -> str:
        """Holds tags."""
        return self.of_branch("tag")

    @property
    def branch_directory(self) -> str:
        """Holds one directory per branch."""
        return self.at("branch")

    @property
    def trash_directory(self) -> str:
        """Holds records of what maintenance has removed, and undo restores."""
        return self.at("trash")

    @property
    def consumer_directory(self) -> str:
        """Holds the positions of named readers."""
        return self.of_branch("consumer")

    # Metadata files.

    def schema_file(self, schema_id: int) -> str:
        """One schema version."""
        return f"{self.schema_directory}/{SCHEMA_PREFIX}{schema_id}"

    def snapshot_file(self, snapshot_id: int) -> str:
        """One committed state."""
        return f"{self.snapshot_directory}/{SNAPSHOT_PREFIX}{snapshot_id}"

    def snapshot_hint(self, hint: str) -> str:
        """LATEST or EARLIEST of the snapshots."""
        return f"{self.snapshot_directory}/{check_name(hint)}"

    def changelog_file(self, snapshot_id: int) -> str:
        """The changelog that outlived a snapshot."""
        return f"{self.changelog_directory}/{CHANGELOG_PREFIX}{snapshot_id}"

    def changelog_hint(self, hint: str) -> str:
        """LATEST or EARLIEST of the changelogs."""
        return f"{self.changelog_directory}/{check_name(hint)}"

    def manifest(self, name: str) -> str:
        """A manifest, manifest list or index manifest."""
        return f"{self.manifest_directory}/{check_name(name)}"

    def index_file(self, name: str) -> str:
        """Deletion vectors or a hash index."""
        return f"{self.index_directory}/{check_name(name)}"

    def statistics_file(self, name: str) -> str:
        """Return the path of the statistics that ANALYZE wrote about a snapshot."""
        return f"{self.statistics_directory}/{check_name(name)}"

    def tag_file(self, name: str) -> str:
        """A named snapshot."""
        return f"{self.tag_directory}/{check_name(TAG_PREFIX + name)}"

    def branch(self, name: str) -> "TablePaths":
        """Paths of a branch's schemas, snapshots and tags; its other files are the table's."""
        check_name(name)  # an empty one would be the table itself
        return replace(self, branch_name=name)

    def trash_file(self, name: str) -> str:
        """A record of what one operation of maintenance has removed."""
        return f"{self.trash_directory}/{check_name(name)}"

    @property
    def verified_file(self) -> str:
        """Which data files a deep verification has found sound."""
        return self.at("verified", "verified-files")

    def consumer_file(self, consumer_id: str) -> str:
        """How far a named reader has got."""
        return f"{self.consumer_directory}/{check_name(CONSUMER_PREFIX + consumer_id)}"

    @property
    def commit_identifier_file(self) -> str:
        """The last commit identifiers of users, as far as snapshots may not keep them."""
        return f"{self.consumer_directory}/commit-identifiers"

    # Data.

    @property
    def bucket_root(self) -> str:
        """Holds the directories of partitions, and of buckets."""
        return self.at(self.data_directory)

    def bucket_directory(self, partition_path: str, bucket: int) -> str:
        """A bucket's files. `partition_path` as format/partition_path spells it, or ""."""
        name = POSTPONE_DIRECTORY if bucket == -2 else f"{BUCKET_PREFIX}{bucket}"
        return self.at(self.data_directory, partition_path.strip("/"), name)

    def data_file(self, partition_path: str, bucket: int, name: str) -> str:
        """A data or changelog file, or a sidecar of one."""
        return f"{self.bucket_directory(partition_path, bucket)}/{check_name(name)}"


def numbered(name: str, prefix: str) -> int | None:
    """Return the number in a file name such as "snapshot-12", or None if it is not one of those."""
    digits = name.removeprefix(prefix)
    if not name.startswith(prefix) or not (digits.isascii() and digits.isdigit()):
        return None
    # "snapshot-007" is not the file of snapshot 7: it would never be found again.
    return int(digits) if len(digits) <= 19 and str(int(digits)) == digits else None
