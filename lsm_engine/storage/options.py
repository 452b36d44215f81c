"""Endpoints and credentials of stores, under the names that Paimon's clients take.

They belong to a catalog or to an opened table, never to a table's schema file, which all readers see.
Each may come from the environment as LSM_STORAGE_<NAME>: `s3.secret-key` is LSM_STORAGE_S3_SECRET_KEY.
Secrets are masked in texts and are not pickled. A process that unpickles options has the secrets in its own
environment, or is the process that opened the table.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any

from lsm_engine.base.errors import InvalidOptionError
from lsm_engine.base.names import did_you_mean
from lsm_engine.base.record import record
from lsm_engine.storage.clock import SystemIds

VARIABLE_PREFIX = "LSM_STORAGE_"
MASKED = "******"


@record
class Family:
    """The options of one kind of store.

    `prefixes`: the prefixes of option names. `fields`: the rest of the name, without punctuation, and the
    setting. `shown`: the fields that are no secrets. `environment`: variables with the library's credentials.
    `schemes`: of its locations.
    """

    name: str
    schemes: tuple[str, ...]
    prefixes: tuple[str, ...]
    fields: Mapping[str, str]
    shown: frozenset[str]
    environment: tuple[str, ...]


S3 = Family(
    name="s3",
    schemes=("s3", "s3a", "s3n"),
    prefixes=("s3.", "s3a.", "s3n.", "fs.s3.", "fs.s3a.", "fs.s3n."),
    fields={
        "endpoint": "endpoint",
        "region": "region",
        "endpointregion": "region",
        "accesskey": "access_key",
        "accesskeyid": "access_key",
        "secretkey": "secret_key",
        "accesskeysecret": "secret_key",
        "sessiontoken": "session_token",
        "securitytoken": "session_token",
        "pathstyleaccess": "path_style",
        "profile": "profile",
    },
    shown=frozenset({"endpoint", "region", "path_style", "profile"}),
    environment=(
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
)
AZURE = Family(
    name="azure",
    schemes=("abfs", "abfss", "az", "azure", "wasb", "wasbs"),
    prefixes=("azure.", "fs.azure.", "fs.abfs.", "fs.abfss."),
    fields={
        "endpoint": "endpoint",
        "account": "account",
        "accountname": "account",
        "accountkey": "account_key",
        "sastoken": "sas_token",
        "sasfixedtoken": "sas_token",
        "accountoauth2clientid": "client_id",
        "accountoauth2clientsecret": "client_secret",
        "accountoauth2clientendpoint": "tenant_endpoint",
        "tenantid": "tenant_id",
    },
    shown=frozenset({"endpoint", "account", "client_id", "tenant_endpoint", "tenant_id"}),
    environment=(
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_CLIENT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
    ),
)
GCS = Family(
    name="gs",
    schemes=("gs", "gcs"),
    prefixes=("gs.", "gcs.", "fs.gs.", "fs.gcs."),
    fields={
        "endpoint": "endpoint",
        "storagerooturl": "endpoint",
        "authtype": "auth_type",
        "authserviceaccountjsonkeyfile": "key_file",
        "accesstoken": "access_token",
    },
    shown=frozenset({"endpoint", "auth_type", "key_file"}),
    environment=("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"),
)
HDFS_CONFIGURATION = "configuration "
"""The prefix of fields of `hadoop.<name>`: entries of Hadoop's configuration, passed on unchanged."""
HDFS = Family(
    name="hadoop",
    schemes=("hdfs", "viewfs"),
    prefixes=("hadoop.", "hadoop-", "security.kerberos.login."),
    fields={"confdir": "config_dir", "principal": "principal", "keytab": "keytab"},
    shown=frozenset({"config_dir", "principal", "keytab"}),
    environment=("HADOOP_CONF_DIR", "HADOOP_HOME"),
)
_OPENS = re.compile(r"password|secret|token|credential")
_FAMILIES = (S3, AZURE, GCS, HDFS)
# fs.azure.account.key.<account>.dfs.core.windows.net: Hadoop's names end in the account's host.
_AZURE_ACCOUNT = re.compile(r"\.([a-z0-9]{3,24})\.(?:blob|dfs)\.core\.[a-z.]+$")
_secrets_by_key: dict[str, dict[str, str]] = {}
# Prefixes of variables that the libraries of the stores read by themselves.
_NATIVE = ("AWS_", "AZURE_", "GOOGLE_", "HADOOP_")
_OWN_SCHEME = "memory"  # of stores in this process, which no environment names


class StorageOptions:
    """The validated storage options of one catalog or table, by name."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._texts = {name: _text(value) for name, value in (options or {}).items()}
        for name in self._texts:
            _parse_name(name)
        self._missing: tuple[str, ...] = ()
        self._key = ""
        if any(_is_secret(name) for name in self._texts):
            self._key = SystemIds().new_id()
            _secrets_by_key[self._key] = self._texts

    @staticmethod
    def coerce(options: "Mapping[str, Any] | StorageOptions | None") -> "StorageOptions":
        """Return validated options; StorageOptions are returned unchanged."""
        return options if isinstance(options, StorageOptions) else StorageOptions(options)

    def __repr__(self) -> str:
        shown = {
            name: MASKED if _is_secret(name) else text for name, text in self._texts.items()
        } | dict.fromkeys(self._missing, MASKED)
        return f"StorageOptions({shown})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageOptions) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(frozenset(self._texts.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        shown = {name: text for name, text in self._texts.items() if not _is_secret(name)}
        secret = (*(name for name in self._texts if _is_secret(name)), *self._missing)
        return _restored, (shown, secret, self._key)

    def settings(
        self, family: Family, environment: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the settings of a family, by field. Options override the environment.

        Raises InvalidOptionError for a secret that only another process has.
        """
        environ = os.environ if environment is None else environment
        settings = dict(_of_environment(family, environ))
        for name, text in self._texts.items():
            option_family, field, account = _parse_name(name)
            if option_family == family:
                settings[field] = text
                if account:
                    settings.setdefault("account", account)
        for name in self._missing:
            option_family, field, _ = _parse_name(name)
            native = any(environ.get(variable) for variable in family.environment)
            if option_family == family and field not in settings and not native:
                raise InvalidOptionError(
                    f"the storage option {name!r} is known to the driver alone: secrets are not sent "
                    f"along; set {_variable(name)} where tasks run (spark.executorEnv.*), or use a role",
                    option=name,
                )
        return settings

    def _without(self, names: tuple[str, ...]) -> "StorageOptions":
        self._missing = names
        return self


class SentOptions(StorageOptions):
    """Options that are pickled with their secrets, for other processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return SentOptions, (self._texts,)


NO_OPTIONS = StorageOptions()


def environment_mark(scheme: str) -> str:
    """Return a digest of the environment's storage options: a different one may mean a different store."""
    if scheme == _OWN_SCHEME:
        return ""
    variables = sorted(
        pair for pair in os.environ.items() if pair[0].startswith((VARIABLE_PREFIX, *_NATIVE))
    )
    return hashlib.blake2b(
        repr(variables).encode("utf-8", "surrogateescape"), digest_size=16
    ).hexdigest()


def require_environment(location: str, scheme: str, mark: str) -> None:
    """Raise InvalidOptionError if the environment's storage options have changed since `mark` was taken."""
    if environment_mark(scheme) != mark:
        raise InvalidOptionError(
            "the environment's storage options (LSM_STORAGE_*, AWS_*, AZURE_*, GOOGLE_*, HADOOP_*) have "
            "changed since this was opened and before its first request; open it again",
            location=location,
        )


def is_storage_option(name: str) -> bool:
    """Whether a name is that of a storage option."""
    try:
        _parse_name(name)
    except InvalidOptionError:  # of no family
        return False
    return True


def check_storage_name(name: str) -> None:
    """Raise InvalidOptionError for a name that begins as storage options do, and is none."""
    if any(name.lower().startswith(prefix) for family in _FAMILIES for prefix in family.prefixes):
        _parse_name(name)


def _restored(shown: dict[str, str], secret: tuple[str, ...], key: str) -> StorageOptions:
    if key in _secrets_by_key:
        options = StorageOptions(_secrets_by_key[key])
        del _secrets_by_key[options._key]  # noqa: SLF001 -- of our own class
        options._key = key  # noqa: SLF001
        return options
    return StorageOptions(shown)._without(secret)  # noqa: SLF001


def _of_environment(family: Family, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        (field, text)
        for variable, text in environ.items()
        if variable.startswith(VARIABLE_PREFIX) and text
        for option_family, field, _ in [_parse_variable(variable)]
        if option_family == family
    ]


def _parse_variable(variable: str) -> tuple[Family, str, str]:
    name = variable.removeprefix(VARIABLE_PREFIX).lower().replace("_", ".")
    try:
        return _parse_name(name)
    except InvalidOptionError as error:
        raise InvalidOptionError(
            f"the environment variable {variable} names no storage option; unset or correct it",
            variable=variable,
        ) from error


def _parse_name(name: str) -> tuple[Family, str, str]:
    """Return the family of an option, its field, and the Azure account in its name."""
    lowered = name.lower()
    for family in _FAMILIES:
        prefix = _prefix_of(family, lowered)
        if not prefix:
            continue
        suffix, account = lowered[len(prefix) :], ""
        match = _AZURE_ACCOUNT.search(lowered) if family is AZURE else None
        if match is not None:
            suffix, account = lowered[len(prefix) : match.start()], match.group(1)
        field = family.fields.get(re.sub(r"[^a-z0-9]", "", suffix))
        if field is None and prefix == "hadoop." and "." in suffix:
            field = HDFS_CONFIGURATION + name[len(prefix) :]
        if field is not None:
            return family, field, account
    option_names = sorted(
        f"{family.name}.{field}" for family in _FAMILIES for field in family.fields
    )
    hint = did_you_mean(re.sub(r"[-_]", "", lowered), option_names, cutoff=0.8)
    raise InvalidOptionError(f"there is no storage option {name!r}{hint}", option=name)


def _prefix_of(family: Family, lowered: str) -> str:
    """Return the longest prefix of the family's names that an option has; "" for none."""
    return max(filter(lowered.startswith, family.prefixes), default="", key=len)


def _is_secret(name: str) -> bool:
    family, field, _ = _parse_name(name)
    if field.startswith(HDFS_CONFIGURATION):
        return _OPENS.search(field.lower()) is not None
    return field not in family.shown


def _variable(name: str) -> str:
    family, _, _ = _parse_name(name)
    rest = name[len(_prefix_of(family, name.lower())) :]
    suffix = re.sub(r"[^A-Za-z0-9]+", "_", rest).upper()
    return f"{VARIABLE_PREFIX}{family.name.upper()}_{suffix}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
