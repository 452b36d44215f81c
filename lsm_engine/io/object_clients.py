"""Clients of object stores: obstore's, from a location and storage options.

One pair exists per bucket, options and environment, so that tables share connections (`SharedClients`).
"""

import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from importlib import import_module
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from lsm_engine.base.errors import InvalidOptionError, UnsupportedError
from lsm_engine.io.object_answers import to_configuration_error
from lsm_engine.io.shared_clients import SharedClients
from lsm_engine.io.storage_location import StorageLocation
from lsm_engine.io.storage_options import AZURE, GCS, S3, StorageOptions

_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "10min"}
_ONCE = {"max_retries": 0, "retry_timeout": timedelta(0)}
_PATIENT = {
    "max_retries": 12,
    "retry_timeout": timedelta(minutes=2),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=20)},
}
_MEMORY = "memory"
_ADDRESS = re.compile(r"[a-z]+://[!-~]+")
_lock = threading.Lock()


class Clients:
    """The two clients of a bucket: `once` sends a request once, `patient` retries it.

    `endpoint` is the address of the store, for messages. `proven`: warehouses whose conditional creates have
    one winner. `looked_for`: warehouses whose marker was looked for. `has_answered`: whether the store has
    ever answered, so that its address is right.
    """

    def __init__(self, location: StorageLocation, options: StorageOptions) -> None:
        self.once, self.patient, self.endpoint = _pair(location, options)
        self.has_answered = location.scheme == _MEMORY
        self.proven: set[str] = set()
        self.looked_for: dict[str, Future[None]] = {}

    def renew(self, location: StorageLocation, options: StorageOptions, stale: Any) -> None:
        """Read the credentials again, unless `stale`, the refused client, has been replaced already.

        An environment that names another store since then is not followed.
        """
        with _lock:
            if self.once is not stale or location.scheme == _MEMORY:
                return
            once, patient, endpoint = _pair(location, options)
            if endpoint == self.endpoint:
                self.once, self.patient = once, patient


shared = SharedClients(Clients)


def _pair(location: StorageLocation, options: StorageOptions) -> tuple[Any, Any, str]:
    make = _MAKERS[location.scheme]
    try:
        once, endpoint = make(location, options, _ONCE)
        if location.scheme == _MEMORY:
            return once, once, endpoint
        return once, make(location, options, _PATIENT)[0], endpoint
    except (BaseError, ValueError, TypeError) as cause:
        if isinstance(cause, InvalidOptionError):
            raise
        raise to_configuration_error(cause, store=location.text) from None


def _s3(
    location: StorageLocation, options: StorageOptions, retries: Mapping[str, Any]
) -> tuple[Any, str]:
    settings = options.settings(S3)
    endpoint, path_style = s3_address(settings)
    config: dict[str, Any] = {
        "access_key_id": settings.get("access_key"),
        "secret_access_key": settings.get("secret_key"),
        "session_token": settings.get("session_token"),
        "region": settings.get("region"),
        # The signature leaves out the bodies of uploads in parts: hashing would double their time.
        "unsigned_payload": retries is _PATIENT or None,
    }
    if endpoint:
        config["virtual_hosted_style_request"] = not path_style
        config["endpoint"] = endpoint if path_style else _with_bucket(endpoint, location.authority)
    store = S3Store(
        location.authority,
        config=_without_none(config),
        client_options=_client_options(endpoint),
        retry_config=retries,
        credential_provider=_profile(settings["profile"]) if "profile" in settings else None,
    )
    return store, s3_shown(settings)


def s3_shown(settings: Mapping[str, str]) -> str:
    """Return the address of the store that options or the environment name."""
    return s3_address(settings)[0] or f"s3.{settings.get('region') or _aws_region()}.amazonaws.com"


def s3_address(settings: Mapping[str, str]) -> tuple[str, bool]:
    """Return the endpoint that options or the environment name, "" for Amazon's, and if the bucket is in the path.

    Raises InvalidOptionError for an endpoint that is no address.
    """
    endpoint = settings.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3", "")
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    # Most servers that are not Amazon's know no bucket by its host name.
    path_style = bool(endpoint) and _is_true(settings.get("path_style", "true"))
    if endpoint:
        host = _check_endpoint(endpoint, "s3.endpoint")
        _check_bucket_in_host(endpoint, host, path_style=path_style)
    return endpoint, path_style


def _check_endpoint(endpoint: str, option: str) -> str:
    """Return the host of an endpoint; raise InvalidOptionError for one that is no address.

    The library panics over some. A name and a password in it would be shown by the library's errors.
    """
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError:  # a port that is no number, or brackets that do not match
        host = None
    if not host or parts.scheme not in {"http", "https"} or not _ADDRESS.fullmatch(endpoint):
        raise InvalidOptionError(
            "an endpoint is an address such as 'https://storage.example:9000'",
            option=option,
            endpoint=endpoint,
        )
    if parts.username is not None:
        raise InvalidOptionError(
            "an endpoint holds no name and password; give keys by options of their own "
            "(s3.access-key and s3.secret-key, azure.account-key, gs.key-file)",
            option=option,
        )
    return host


def _check_bucket_in_host(endpoint: str, host: str, *, path_style: bool) -> None:
    if not path_style and _is_number(host):
        raise InvalidOptionError(
            "no bucket can stand before an address of numbers; leave s3.path.style.access at true, or "
            "name the host",
            option="s3.path.style.access",
            endpoint=endpoint,
        )


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _aws_region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _with_bucket(endpoint: str, bucket: str) -> str:
    scheme, _, host = endpoint.partition("://")
    return f"{scheme}://{bucket}.{host}"


def _profile(name: str) -> Any:
    try:
        session = import_module("boto3").Session(profile_name=name)
        provider = import_module("obstore.auth.boto3").Boto3CredentialProvider
    except ModuleNotFoundError as cause:
        raise UnsupportedError(
            "profiles (s3.profile) are read by boto3: pip install 'lsm-assets[aws]'",
            option="s3.profile",
        ) from cause
    return provider(session)


def _azure(
    location: StorageLocation, options: StorageOptions, retries: Mapping[str, Any]
) -> tuple[Any, str]:
    settings = options.settings(AZURE)
    container, _, host = location.authority.partition("@")
    account = settings.get("account") or host.partition(".")[0] or None
    endpoint = settings.get("endpoint", "")
    if endpoint:
        _check_endpoint(endpoint, "azure.endpoint")
    tenant = (
        settings.get("tenant_id")
        or urlsplit(settings.get("tenant_endpoint", "")).path.strip("/").partition("/")[0]
    )
    config = {
        "account_name": account,
        "account_key": settings.get("account_key"),
        "sas_key": settings.get("sas_token"),
        "client_id": settings.get("client_id"),
        "client_secret": settings.get("client_secret"),
        "tenant_id": tenant or None,
        "endpoint": endpoint or None,
    }
    store = AzureStore(
        container,
        config=_without_none(config),
        client_options=_client_options(endpoint),
        retry_config=retries,
    )
    return store, endpoint or f"{account}.blob.core.windows.net"


def _gcs(
    location: StorageLocation, options: StorageOptions, retries: Mapping[str, Any]
) -> tuple[Any, str]:
    settings = options.settings(GCS)
    endpoint = settings.get("endpoint", "")
    if endpoint:
        _check_endpoint(endpoint, "gs.endpoint")
    config = {
        "service_account": settings.get("key_file"),
        "bearer_token": settings.get("access_token"),
        "base_url": endpoint or None,
        "skip_signature": settings.get("auth_type", "").upper() == "UNAUTHENTICATED" or None,
    }
    store = GCSStore(
        location.authority,
        config=_without_none(config),
        client_options=_client_options(endpoint),
        retry_config=retries,
    )
    return store, endpoint or "storage.googleapis.com"


def _memory(location: StorageLocation, _: StorageOptions, __: Mapping[str, Any]) -> tuple[Any, str]:
    return MemoryStore(), f"{_MEMORY}:{location.authority}"


_Maker = Callable[[StorageLocation, StorageOptions, Mapping[str, Any]], tuple[Any, str]]
_MAKERS: Mapping[str, _Maker] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _s3),
    **dict.fromkeys(("abfs", "abfss", "az", "azure", "wasb", "wasbs"), _azure),
    **dict.fromkeys(("gs", "gcs"), _gcs),
    _MEMORY: _memory,
}


def _client_options(endpoint: str) -> dict[str, Any]:
    return {**_TIMEOUTS, "allow_http": endpoint.startswith("http://")}


def _without_none(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value is not None}


def _is_true(text: str) -> bool:
    return text.strip().lower() in {"true", "1", "yes"}
