"""Makes asn-blocks.csv and asn-borders.csv from a clone of https://github.com/maxmind/MaxMind-DB.

    pip install maxminddb==3.2.0
    python3 datasets/asn-blocks.py MaxMind-DB

asn-blocks.csv has the blocks of the test data. asn-borders.csv has what MaxMind's reader finds in the test database at
the borders of each block and beside them.
"""

from __future__ import annotations

import csv
import ipaddress
import json
import pathlib
import sys

import maxminddb

FOLDER = pathlib.Path(__file__).parent
FIELD = "autonomous_system_number"


def main() -> None:
    clone = pathlib.Path(sys.argv[1])
    rows = json.loads((clone / "source-data/GeoLite2-ASN-Test.json").read_text())
    blocks = {ipaddress.ip_network(block): fields[FIELD] for row in rows for block, fields in row.items()}
    with (FOLDER / "asn-blocks.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(blocks.items())
    addresses = {border + step for block in blocks for border in (block[0], block[-1]) for step in (-1, 0, 1)}
    ordered = sorted(addresses, key=lambda address: (address.version, address))
    with (
        maxminddb.open_database(clone / "test-data/GeoLite2-ASN-Test.mmdb") as database,
        (FOLDER / "asn-borders.csv").open("w", newline="") as file,
    ):
        found = ((address, database.get(address)) for address in ordered)
        csv.writer(file, lineterminator="\n").writerows((address, row and row[FIELD]) for address, row in found)


if __name__ == "__main__":
    main()
