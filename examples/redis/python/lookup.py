"""python3 lookup.py SOCKET KEY...: looks keys up in a Zero-KV server; exit status 0 found, 1 not found, 2 error."""

import sys

import redis


def main(path="", *keys):
    if not keys:
        raise ValueError(__doc__)
    table = redis.Redis(unix_socket_path=path)
    # A transaction (MULTI), which is redis-py's default, gets all replies from one table.
    with table.pipeline() as pipeline:
        for key in keys:
            pipeline.get(key).exists(key).execute_command("ZKV.FLOOR", key)
        replies = iter(pipeline.execute())
    missing = False
    for key, value, exists, row in zip(keys, replies, replies, replies):
        missing |= not exists
        for name, result in [
            ("get", b"not found" if value is None else value),
            ("exists", b"yes" if exists else b"not found"),
            ("floor", b" ".join(row) if row else b"not found"),
        ]:
            sys.stdout.buffer.write(f"{name} {key}: ".encode() + result + b"\n")
    return 1 if missing else 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (redis.RedisError, ValueError) as error:
        print(f"lookup.py: {error}", file=sys.stderr)
        sys.exit(2)
