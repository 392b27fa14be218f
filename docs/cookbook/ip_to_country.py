"""Measures how long `cover_columns` takes for a million random addresses.

    python docs/cookbook/ip_to_country.py RANGES

bakes RANGES random ranges of addresses into a temporary file with the program `baker`, which must be in PATH, looks the
addresses up seven times in each form of an array, and prints the shortest, the median, and the longest processor time.
The results are compared with a search in NumPy.
"""

from __future__ import annotations

import ipaddress
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import pandas
import pyarrow
import zero_kv

ADDRESSES = 1_000_000
CALLS = 7


def shown(address: int) -> str:
    return str(ipaddress.IPv4Address(int(address)))


def main() -> None:
    random = numpy.random.default_rng(1)
    firsts = numpy.unique(random.integers(0, 2**32, int(sys.argv[1]), dtype=numpy.uint64))
    # Each range ends at a random address before the next range.
    gaps = numpy.append(firsts[1:], 2**32) - firsts
    lasts = firsts + ((gaps - 1) * random.random(len(firsts))).astype(numpy.uint64)
    countries = random.integers(0, 250, len(firsts), dtype=numpy.uint16)
    addresses = random.integers(0, 2**32, ADDRESSES, dtype=numpy.uint32)
    texts = [shown(address) for address in addresses]
    forms = {"uint32": addresses, "Arrow text": pyarrow.array(texts), "pandas text": pandas.Series(texts)}
    at = numpy.searchsorted(firsts, addresses, side="right")
    nearest = numpy.maximum(at, 1) - 1
    expected = numpy.where((at > 0) & (addresses <= lasts[nearest]), countries[nearest], 0xFFFF)
    with tempfile.TemporaryDirectory() as folder:
        file, rows = pathlib.Path(folder) / "countries.db", pathlib.Path(folder) / "countries.csv"
        lines = (f"{shown(first)},{shown(last)},{country}\n" for first, last, country in zip(firsts, lasts, countries))
        rows.write_text("first,last,country\n" + "".join(lines))
        arguments = ["--header", "--ranges", "first,last", "--keys", "ip", "--types", "country:u16", "-o", file, rows]
        subprocess.run(["baker", "--quiet", *arguments], check=True)
        table = zero_kv.open(file)
        for name, form in forms.items():
            times = []
            for _ in range(CALLS):
                start = time.process_time()
                found = table.cover_columns(form, ["country"], fill=0xFFFF)
                times.append((time.process_time() - start) * 1000)
                assert (found.ravel() == expected).all()
            least, median, most = min(times), statistics.median(times), max(times)
            print(f"{len(table)} ranges, {name}: {least:.0f} ms ({median:.0f} ms, at most {most:.0f} ms)", flush=True)


if __name__ == "__main__":
    main()
