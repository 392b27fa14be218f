"""python3 lookup.py SOCKET KEY...: looks keys up in a Zero-KV server; exit status 0 found, 1 not found, 2 error."""

import sys

import redis


def main(path="", *keys):
    if not keys:
        raise ValueError(__doc__)
    table = redis.Redis(unix_socket_path=path)
    # One pipeline for all questions. Without a transaction, for there is no MULTI.
    with table.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.get(key).exists(key).execute_command("ZKV.FLOOR", key)
        answers = iter(pipeline.execute())
    status = 0
    for key, value, exists, row in zip(keys, answers, answers, answers):
        said = b"not found" if value is None else value
        below = b" ".join(row) if row else b"not found"
        ...
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (redis.RedisError, ValueError) as error:
        print(f"lookup.py: {error}", file=sys.stderr)
        sys.exit(2)
