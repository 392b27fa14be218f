"""Reads random keys with redis-py's RedisCluster until standard input ends, and checks every value.

Arguments: the number of rows, the maximum length of a value's letters, and the ports of the nodes. Prints the number of values, and the
longest time between two of them.
"""

import random
import sys
import threading
import time

import redis
import redis.cluster
import redis.exceptions

rows, len_max, *ports = (int(argument) for argument in sys.argv[1:])
nodes = [redis.cluster.ClusterNode("127.0.0.1", port) for port in ports]
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()


def is_right(key, value):
    generation, of_key, letters = value.split(b":")
    expected = bytes(ord("a") + (at + key * 7 + int(generation) * 3) % 26 for at in range(key * 37 % len_max))
    return int(of_key) == key and letters == expected


values, failed, longest_s, last = 0, 0, 0.0, time.monotonic()
client = None
while not ended.is_set():
    key = random.randint(1, rows)
    try:
        if client is None:
            client = redis.RedisCluster(startup_nodes=nodes, read_from_replicas=True, socket_timeout=2)
        value = client.get(key)
    except (redis.exceptions.RedisError, OSError) as error:
        # Applications repeat a request that fails, but not one that nodes redirect to each other.
        failed += 1
        if "TTL exhausted" in str(error):
            sys.exit(f"key {key}: {error}")
        continue
    if value is None or not is_right(key, value):
        sys.exit(f"key {key} has the value {value}")
    values, now = values + 1, time.monotonic()
    longest_s, last = max(longest_s, now - last), now
print(f"{values} values, the longest time between two of them was {longest_s * 1000:.0f} ms, {failed} requests failed")
