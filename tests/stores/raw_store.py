"""obstore's clients of the test servers, bare: they retry nothing."""

from datetime import timedelta

from obstore.store import AzureStore, ObjectStore, S3Store

from tests.stores.servers import StoreServer

_NEVER = {"max_retries": 0, "retry_timeout": timedelta(seconds=30)}


def raw_store(server: StoreServer) -> ObjectStore:
    """A client of the server's bucket or container."""
    how = {"client_options": {"allow_http": True}, "retry_config": _NEVER}
    if server.kind == "azurite":
        named = {
            "account_name": server.access_key,
            "account_key": server.secret_key,
            "endpoint": server.endpoint,
        }
        return AzureStore(server.bucket, config=named, **how)
    named = {
        "endpoint": server.endpoint,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
        "region": server.region,
    }
    return S3Store(server.bucket, config=named, **how)
