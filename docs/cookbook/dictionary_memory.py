"""Measures what a table costs N worker processes: a dict in each, a dict created before the fork, or a Zero-KV file.

python3 dictionary_memory.py --rows 1000000 --workers 8
"""

import argparse
import multiprocessing
import pathlib
import pickle
import random
import tempfile
import time

import zero_kv

LOOKUPS = 200_000
inherited = None


def rows(count):
    return {key: b"value of the key %09d" % key for key in range(count)}


def worker(kind, folder, count, barrier, results):
    started = time.perf_counter()
    if kind == "dict":
        table = pickle.loads((folder / "table.pickle").read_bytes())
    elif kind == "zero_kv":
        table = zero_kv.open(folder / "table.db", verify="touch")
    else:
        table = inherited
    ready_s = time.perf_counter() - started
    rate = 0
    if table is not None:
        for key in range(count):  # touches every row, as a long-lived worker does
            table[key]
        keys = random.Random(7).choices(range(count), k=LOOKUPS)
        barrier.wait()
        started = time.perf_counter()
        for key in keys:
            table[key]
        rate = LOOKUPS / (time.perf_counter() - started)
        del keys
    barrier.wait()
    lines = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
    pss_kib = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    barrier.wait()
    results.put((pss_kib / 1024, ready_s, rate))


def measure(kind, folder, count, workers):
    global inherited
    context = multiprocessing.get_context("fork" if kind == "dict before fork" else "spawn")
    inherited = rows(count) if kind == "dict before fork" else None
    barrier, results = context.Barrier(workers), context.Queue()
    arguments = (kind, folder, count, barrier, results)
    processes = [context.Process(target=worker, args=arguments) for _ in range(workers)]
    for process in processes:
        process.start()
    pss, ready, rates = (sorted(column) for column in zip(*(results.get() for _ in processes)))
    for process in processes:
        process.join()
    rate = f"{rates[workers // 2] / 1e6:.2f}" if rates[0] else "–"
    print(f"| {kind} | {sum(pss):.0f} | {sum(pss) / workers:.0f} | {ready[workers // 2]:.2f} | {rate} |")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--workers", type=int, default=8)
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        table = rows(arguments.rows)
        (folder / "table.pickle").write_bytes(pickle.dumps(table))
        zero_kv.bake(table, folder / "table.db")
        del table
        print(f"{arguments.rows} rows, {arguments.workers} workers\n")
        print("| table | PSS in total, MiB | PSS per process, MiB | startup, s | million lookups per second and process |")
        print("| --- | ---: | ---: | ---: | ---: |")
        for kind in ["none", "dict", "dict before fork", "zero_kv"]:
            measure(kind, folder, arguments.rows, arguments.workers)


if __name__ == "__main__":
    main()
