"""Measures how long the function `countries` of ip-to-country.md takes for a million random addresses.

    python docs/cookbook/ip_to_country.py RANGES

bakes RANGES random ranges of addresses into a temporary file, calls `countries` seven times for each way to open the
file, and prints the median, the shortest, and the longest time. The results are compared with a search in NumPy.
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

import numpy
import zero_kv

ADDRESSES = 1_000_000
CALLS = 7
ROW = numpy.dtype([("last", "<u4"), ("country", "S2")])


def countries(table: zero_kv.Table, addresses: Any) -> Any:
    """Return the country of each address, or an empty string if no range contains the address."""
    _firsts, rows, found = table.floor_many(addresses, dtype=ROW)
    return numpy.where(found & (addresses <= rows["last"]), rows["country"], b"")


def main() -> None:
    ranges = int(sys.argv[1])
    random = numpy.random.default_rng(1)
    firsts = numpy.unique(random.integers(0, 2**32, ranges, dtype=numpy.uint64))
    rows = numpy.empty(len(firsts), ROW)
    # Each range ends at a random address before the next range.
    gaps = numpy.append(firsts[1:], 2**32) - firsts
    rows["last"] = firsts + (gaps - 1) * random.random(len(firsts))
    rows["country"] = [bytes(pair) for pair in random.integers(65, 91, (len(firsts), 2), dtype=numpy.uint8)]
    addresses = random.integers(0, 2**32, ADDRESSES, dtype=numpy.uint64)
    at = numpy.searchsorted(firsts, addresses, side="right")
    nearest = rows[numpy.maximum(at, 1) - 1]
    expected = numpy.where((at > 0) & (addresses <= nearest["last"]), nearest["country"], b"")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "countries.db"
        zero_kv.bake(((int(first), row.tobytes()) for first, row in zip(firsts, rows, strict=True)), file)
        for memory in ("map", "copy"):
            table = zero_kv.open(file, memory=memory)
            times = []
            for _ in range(CALLS):
                start = time.perf_counter()
                found = countries(table, addresses)
                times.append((time.perf_counter() - start) * 1000)
                assert (found == expected).all()
            median, least, most = statistics.median(times), min(times), max(times)
            print(f"{len(firsts)} ranges, memory={memory!r}: median {median:.0f} ms ({least:.0f} to {most:.0f} ms)")


if __name__ == "__main__":
    main()
