"""Locations on the servers of the tests, with the options that open them."""

from collections.abc import Mapping

from tests.stores.servers import StoreServer


def location(server: StoreServer, path: str) -> str:
    """Where a path of the server's bucket is."""
    if server.kind == "hdfs":
        return f"hdfs://{server.host}:{server.port}/{server.bucket}/{path}"
    scheme = {"azurite": "az", "gcs": "gs"}.get(server.kind, "s3")
    return f"{scheme}://{server.bucket}/{path}"


def options(server: StoreServer) -> Mapping[str, str]:
    """Endpoint and credentials, under the names that Paimon's clients take."""
    if server.kind == "hdfs":
        return {}
    if server.kind == "gcs":
        return {"gs.endpoint": server.endpoint, "gs.access-token": server.secret_key}
    if server.kind == "azurite":
        return {
            "azure.endpoint": server.endpoint,
            "azure.account": server.access_key,
            "azure.account.key": server.secret_key,
        }
    return {
        "s3.endpoint": server.endpoint,
        "s3.access-key": server.access_key,
        "s3.secret-key": server.secret_key,
    }
