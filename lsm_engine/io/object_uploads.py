"""Uploads in parts that were begun on S3 and never completed: listed and aborted by boto3.

obstore has no call for them, and what it signs is the path of an object alone, so that a listing of
uploads, which is asked for by a query, cannot be signed by it either. Azure forgets blocks that were
not committed after a week by itself; Google's are left to a rule of the bucket.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from lsm_engine.base.errors import InvalidOptionError, StorageError, UnsupportedError
from lsm_engine.io.file_io import check_path
from lsm_engine.io.in_flight import at_once
from lsm_engine.io.object_clients import s3_address, s3_shown
from lsm_engine.io.object_requests import Requests
from lsm_engine.io.remote_file_io import RemoteFileIO
from lsm_engine.io.storage_location import StorageLocation
from lsm_engine.io.storage_options import S3, StorageOptions
from lsm_engine.meta.unfinished_upload import UnfinishedUpload

_S3 = frozenset({"s3", "s3a", "s3n"})
_GOOGLE = frozenset({"gs", "gcs"})
_RULE = "give the bucket a lifecycle rule that aborts incomplete uploads"


class UploadsInParts(RemoteFileIO):
    """The part of a FileIO over objects that knows of uploads."""

    _requests: Requests

    def unfinished_uploads(self, directory: str) -> Sequence[UnfinishedUpload]:
        """Return uploads below a directory that are not completed, from pages of 1,000.

        Raises UnsupportedError on Google's store and without boto3, StorageError where a policy lacks
        s3:ListBucketMultipartUploads.
        """
        if self.location.scheme in _GOOGLE:
            raise UnsupportedError(f"uploads are not listed on this store: {_RULE}")
        if self.location.scheme not in _S3:
            return ()
        start = self.location.at(check_path(directory)) if directory else self.location.prefix
        prefix = f"{start}/" if start else ""
        client = _client(self.location, self.options, self._requests.clients.endpoint)

        def pages() -> list[Any]:
            of = client.get_paginator("list_multipart_uploads")
            return list(of.paginate(Bucket=self.location.authority, Prefix=prefix))

        above = f"{self.location.prefix}/" if self.location.prefix else ""
        return [
            UnfinishedUpload(
                path=one["Key"].removeprefix(above),
                upload_id=one["UploadId"],
                begun_millis=int(one["Initiated"].timestamp() * 1000),
            )
            for page in _answered(pages, self.location, "list uploads")
            for one in page.get("Uploads", ())
        ]

    def abort_uploads(self, uploads: Iterable[UnfinishedUpload]) -> None:
        """Abort uploads, so that their parts go; those that have ended meanwhile are no error."""
        given = list(uploads)
        if not given:
            return
        client = _client(self.location, self.options, self._requests.clients.endpoint)

        def abort(one: UnfinishedUpload) -> None:
            key = self.location.at(check_path(one.path))
            _answered(
                lambda: client.abort_multipart_upload(
                    Bucket=self.location.authority, Key=key, UploadId=one.upload_id
                ),
                self.location,
                "abort upload",
            )

        for _ in at_once(abort, given):
            pass


def _client(location: StorageLocation, options: StorageOptions, asked: str) -> Any:
    """Return boto3's client of the store that is `asked` otherwise."""
    try:
        boto3, configuration = import_module("boto3"), import_module("botocore.config")
    except ModuleNotFoundError as cause:
        raise UnsupportedError(
            f"uploads are listed by boto3: pip install 'lsm-assets[aws]', or {_RULE}"
        ) from cause
    found = options.settings(S3)
    if s3_shown(found) != asked:
        raise InvalidOptionError(
            "the environment names another store than when this was opened; open it again",
            location=location.text,
        )
    endpoint, is_path_style = s3_address(found)
    how = configuration.Config(
        s3={"addressing_style": "path" if is_path_style else "virtual"},
        retries={"mode": "standard", "total_max_attempts": 8},
        connect_timeout=5,
    )

    def make() -> Any:
        session = boto3.Session(
            aws_access_key_id=found.get("access_key"),
            aws_secret_access_key=found.get("secret_key"),
            aws_session_token=found.get("session_token"),
            region_name=found.get("region"),
            profile_name=found.get("profile"),
        )
        return session.client("s3", endpoint_url=endpoint or None, config=how)

    return _answered(make, location, "configure")


def _answered(act: Any, location: StorageLocation, doing: str) -> Any:
    """Return what boto3 returns. Its errors may show what is secret: nothing but code and class gets out."""
    exceptions = import_module("botocore.exceptions")
    try:
        return act()
    except exceptions.ClientError as cause:
        code = str(cause.response.get("Error", {}).get("Code", ""))
        if code == "NoSuchUpload":
            return None
        raise StorageError(
            "the store refuses this: grant s3:ListBucketMultipartUploads on the bucket and "
            "s3:AbortMultipartUpload on its objects",
            store=location.text, request=doing, code=code,
        ) from None  # fmt: skip
    except exceptions.BotoCoreError as cause:
        raise StorageError(
            "boto3 found no way to ask the store; check region and credentials",
            store=location.text, request=doing, code=type(cause).__name__,
        ) from None  # fmt: skip
