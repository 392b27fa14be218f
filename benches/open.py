#!/usr/bin/env python3
"""Measures the time from exec of kv_store to its first answer, with the file in the page cache and without.

Usage: benches/open.py SERVER TABLE [--rounds N] [-- SERVER_OPTION...]

The table's keys must be numbers that include 1..rows. Before a cold round, the file is synced and removed from the page
cache (posix_fadvise), so the first answer waits for the disk. The client polls for the socket without sleeping, so it
occupies one processor. Prints the median and the greatest time of all rounds.
"""

import argparse
import os
import random
import socket
import statistics
import struct
import subprocess
import tempfile
import time

GET = 0


def evict(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_whole(path):
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass


def row_count(path):
    with open(path, "rb") as file:
        return struct.unpack("<Q", file.read(32)[24:])[0]


def first_answer_s(server, options, path, key, folder):
    """Returns the seconds from exec to the first answer."""
    address = os.path.join(folder, "s")
    command = [server, "--db", path, "--socket", address, *options]
    started = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, close_fds=True)
    try:
        client = socket.socket(socket.AF_UNIX)
        while True:
            try:
                client.connect(address)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if process.poll() is not None:
                    raise SystemExit(f"{command} ended with {process.returncode}")
        client.sendall(struct.pack(">IIQ", GET, 0, key))
        response = client.recv(8, socket.MSG_WAITALL)
        elapsed_s = time.perf_counter() - started
        status, _ = struct.unpack(">II", response)
        assert status == 0, f"status {status} for key {key}"
        return elapsed_s
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("table")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    rows = row_count(arguments.table)
    keys = random.Random(1)
    for name, prepare in [("warm", read_whole), ("cold", evict)]:
        times = []
        for _ in range(arguments.rounds):
            prepare(arguments.table)
            with tempfile.TemporaryDirectory() as folder:
                key = keys.randrange(1, rows + 1)
                times.append(
                    first_answer_s(arguments.server, arguments.options, arguments.table, key, folder) * 1000
                )
        print(f"{name}: {rows} rows: median {statistics.median(times):.1f} ms, greatest {max(times):.1f} ms", flush=True)


main()
