"""The configuration with which Feast's universal tests use the online store of this package: see README.md."""

from tests.universal.feature_repos.universal.data_sources.file import FileDataSourceCreator

AVAILABLE_OFFLINE_STORES = [("local", FileDataSourceCreator)]
# Some tests run only for stores with well-known names. The name sqlite includes the tests of all types.
AVAILABLE_ONLINE_STORES = {"sqlite": ({"type": "zero_kv.feast.ZeroKvOnlineStore"}, None)}
