"""What the documents presuppose, and which of their blocks are not run.

The keys of NOT_RUN, SHELL, PYTHON, and SAVED are a document and the beginning of a block or a command. A key
that matches nothing is an error.
"""

from __future__ import annotations

DOCUMENTS = [
    "README.md",
    "python/README.md",
    "examples/README.md",
    "docs/CLUSTER.md",
    "docs/cookbook/as-of.md",
    "docs/cookbook/configuration.md",
    "docs/cookbook/features.md",
    "docs/cookbook/ip-to-country.md",
    "docs/cookbook/java.md",
    "docs/cookbook/python-dictionary.md",
    "docs/cookbook/spark.md",
]

# Documents whose Python blocks are one program. In other documents, each block is a program.
ONE_PROGRAM = {"docs/CLUSTER.md", "docs/cookbook/as-of.md", "python/README.md"}

# The tool that a command or a Python block needs. The first match counts.
TOOLS = {
    "pip install target/dist/": "wheel",
    "packaging/release": "a build of all packages",
    "pip install ./python ": "a build of the package",
    "./zero-kv/python[": "feast-clone",
    "./python[": "a build of the package",
    "apt install": "apt",
    "cargo ": "cargo",
    "./cycle.sh": "cargo",
    "target/release": "cargo",
    "FULL_REPO_CONFIGS_MODULE": "feast-clone",
    "pytest ": "pytest",
    "serve_parquet.py": "java",
    "zero_kv.spark": "java",
    "zero_kv.feast": "feast",
    "redis-cli": "redis-cli",
    "python3 ": "python",
    # A Python block bakes the table.
    "kv_store countries.db": "python",
    # A Python block joins the rows.
    "cities.db": "python",
}

NOT_RUN = {
    ("README.md", "CSV, JSON"): "a picture",
    ("docs/CLUSTER.md", '{"format"'): "tests/cluster has valid and invalid topologies",
    ("docs/cookbook/features.md", "import contextlib"): "a web server, which needs FastAPI",
    ("docs/cookbook/java.md", "<dependency>"): "tests/redis/clients/java/pom.xml has these versions",
    ("docs/cookbook/java.md", "import java.util"): "tests/languages/java_page.rs runs it",
    ("docs/cookbook/java.md", "import io.lettuce"): "tests/languages/java_page.rs runs it",
    ("docs/cookbook/java.md", "GRINNING FACE"): "tests/languages/java_page.rs compares it",
    ("docs/cookbook/spark.md", "zero_kv.spark.write("): "a line of serve_parquet.py",
    ("docs/cookbook/spark.md", "zero_kv.spark.read("): "a line of serve_parquet.py",
    ("python/README.md", 'with zero_kv.Client("zkv+tls://'): "python/tests/test_security.py has a certificate and a login",
}

# Blocks that are written to a file.
SAVED = {("python/README.md", "project: rides"): "feature_store.yaml"}

NODES = """
kv_store --db shards/0-8191.db --slots 0-8191 --socket a.sock --tcp 10.0.0.1:6380 --cluster --node a \
    --announce 10.0.0.1:6380 --topology topology.json &
kv_store --db shards/8192-16383.db --slots 8192-16383 --socket b.sock --tcp 10.0.0.2:6380 --cluster --node b \
    --announce 10.0.0.2:6380 --topology topology.json &
until zkv ping --socket a.sock && zkv ping --socket b.sock; do sleep 0.1; done
"""

# Shell commands that make what a document presupposes. They run before the command or the block, and those of a Python
# block in a document of one program before this program.
SHELL = {
    # A system without Cargo has the programs of the wheel.
    ("README.md", "baker datasets"): "command -v baker || pip install --quiet target/dist/zero_kv-*.whl",
    ("examples/README.md", "python3 examples/native/python/lookup.py"): """
        baker --quiet datasets/unicode-names.csv
        kv_store & until zkv ping; do sleep 0.1; done
    """,
    ("docs/CLUSTER.md", "baker rows.csv --keys u64 --shards 2"): "seq 1000 | sed 's/.*/&,value &/' > rows.csv",
    ("docs/CLUSTER.md", "baker rows.csv --keys u64 --shards 16"): """
        kill %1; wait; mv shards files-of-two-nodes
    """,
    ("docs/CLUSTER.md", "use zero_kv::client::ClusterClient;"): f"""
        kill %1; wait; rm -r shards; mv files-of-two-nodes shards; {NODES}
    """,
    ("docs/CLUSTER.md", "import zero_kv"): f"""
        zkv ping --socket a.sock || {{ kill %1; wait; rm -r shards; mv files-of-two-nodes shards; {NODES} }}
    """,
    ("docs/cookbook/configuration.md", "baker --keys bytes settings.csv"): """
        mkdir -p /run/zero-kv
        printf 'currency,EUR\\nretries,3\\n' > settings.csv
        printf 'currency,CHF\\nretries,4\\n' > changed.csv
    """,
    ("docs/cookbook/features.md", "import numpy\nimport pyarrow.parquet\nimport zero_kv"): """
        kv_store features.db --socket features.sock &
        until zkv ping --socket features.sock; do sleep 0.1; done
    """,
    ("docs/cookbook/spark.md", "zkv topology plan"): """
        seq 1000 | sed 's/.*/&,value &/' | baker --quiet --keys u64 --shards 2 -o shards --to s3://tables/users -
    """,
    ("python/README.md", "nodes = ["): f"""
        seq 1000 | sed 's/.*/&,value &/' | baker --quiet --keys u64 --shards 2 -o shards -
        zkv topology plan --nodes a=10.0.0.1:6380,b=10.0.0.2:6380 > topology.json
        {NODES}
    """,
}

# Python that defines what a block presupposes.
PYTHON = {
    ("python/README.md", "matrix = table.columns("): """
items = {number: {"price": number / 2, "weight": 1.5, "name": f"item {number}"} for number in range(1000)}
zero_kv.bake(items, "items.db", types={"price": "f32", "weight": "f32", "name": "text?"})
table = zero_kv.open("items.db")
try:
    import torch
except ImportError:
    import numpy as torch  # It also has from_dlpack.
""",
    ("python/README.md", "keys = zero_kv.feast"): """
import datetime
import pathlib

import pandas
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Float32

pathlib.Path("data").mkdir()
now = datetime.datetime.now(datetime.timezone.utc)
stats = {"driver_id": [1001, 1002], "conv_rate": [0.5, 0.25], "acc_rate": [1.0, 0.75], "time": [now] * 2}
pandas.DataFrame(stats).to_parquet("stats.parquet")
driver = Entity(name="driver", join_keys=["driver_id"], value_type=ValueType.INT64)
source = FileSource(path=str(pathlib.Path("stats.parquet").resolve()), timestamp_field="time")
fields = [Field(name="conv_rate", dtype=Float32), Field(name="acc_rate", dtype=Float32)]
view = FeatureView(name="stats", entities=[driver], schema=fields, source=source, ttl=datetime.timedelta(days=1))
store = FeatureStore(repo_path=".")
store.apply([driver, view])
store.materialize(now - datetime.timedelta(hours=1), now + datetime.timedelta(hours=1))
pathlib.Path("/run/zero-kv").mkdir(parents=True, exist_ok=True)
rides = zero_kv.serve("data/online/rides_stats.db", socket="/run/zero-kv/rides_stats.sock")
""",
    ("python/README.md", "generation = zero_kv.publish("): """
ids = numpy.arange(1000)
zero_kv.bake({int(number): f"user {number}" for number in ids}, "users.db")
for _ in range(6):
    zero_kv.publish("users.db", "s3://tables/users")
""",
    ("python/README.md", "slots = zero_kv.slots("): """
url = "s3://tables/orders"
rows = pyarrow.record_batch({"id": ids, "price": ids / 2, "name": ["pen"] * 1000, "blob": [b"x"] * 1000})
slot = pyarrow.array(zero_kv.slots(rows.column("id")))
batch = rows.filter(pyarrow.compute.less(slot, 8192))
batches = [batch]
others = rows.filter(pyarrow.compute.and_(pyarrow.compute.greater_equal(slot, 8192), pyarrow.compute.less(slot, 12288)))
columns = {"key": "id", "columns": ["price", "name"]}
for generation in range(1, 8):
    entries = [
        zero_kv.write_shard([batch], range(0, 8192), url, **columns),
        zero_kv.write_shard([others], range(8192, 12288), url, **columns),
    ]
    if generation <= 6:
        zero_kv.commit(entries, url, empty=[range(12288, 16384)])
""",
    ("python/README.md", 'client[7]["price"]'): """
items_server = zero_kv.serve("items.db")
client = zero_kv.Client(items_server.address)
""",
}
