"""python3 lookup.py SOCKET KEY...: looks keys up in a Zero-KV server; exit status 0 found, 1 not found, 2 error."""

import socket
import struct
import sys
import threading

GET, EXISTS, FLOOR, INFO, LONG, OK, NOT_FOUND, ERROR = 0, 1, 2, 6, 1 << 16, 0, 1, 2
LEN_MAX_BYTES = {GET: 1 << 30, EXISTS: 0, FLOOR: 1_073_811_464, INFO: 1 << 16}


def request(op, key):
    if isinstance(key, int):
        return struct.pack(">IIQ", op, 0, key)
    return struct.pack(">II", LONG | op, len(key)) + key + bytes(-(8 + len(key)) % 16)


def read_response(stream, op):
    """Reads a response. Returns its value, or None if the table does not have the row."""
    header = stream.read(8)
    if len(header) < 8:
        raise ConnectionError(f"the connection ended before the response to op {op}")
    status, len_bytes = struct.unpack(">II", header)
    if status > ERROR or len_bytes > (LEN_MAX_BYTES[op] if status == OK else 0):
        raise ValueError(f"a response to op {op} has status {status} and {len_bytes} bytes: is this a kv_store?")
    if status == ERROR:
        raise LookupError(f"the server responded to op {op} with an error: see its log")
    value = stream.read(len_bytes)
    if len(value) < len_bytes:
        raise ConnectionError(f"the connection ended after {len(value)} of {len_bytes} bytes of a value")
    return value if status == OK else None


def only_row(page):
    """Returns the key and the value of a response to FLOOR, which is a page of one row."""
    rows, kind = struct.unpack_from(">IB", page)
    key_at, key_len = (8, 8) if kind == 1 else (10, int.from_bytes(page[8:10], "little"))
    key, at = page[key_at : key_at + key_len], (key_at + key_len + 7) // 8 * 8
    value_len = int.from_bytes(page[at + 4 : at + 8], "big")
    if rows != 1 or at + 8 + value_len > len(page):
        raise ValueError(f"a response of {len(page)} bytes is not a page of one row: is this a kv_store?")
    return int.from_bytes(key, "little") if kind == 1 else key, page[at + 8 : at + 8 + value_len]


def send_requests(server, pairs):
    """Sends pairs of op and key as requests, and returns the values of the responses in order."""
    requests = b"".join(request(op, key) for op, key in pairs)
    if len(requests) <= 16384:
        server.sendall(requests)
    else:  # These requests may not fit into the socket's buffer, and a server buffers a limited number of requests.
        threading.Thread(target=server.sendall, args=[requests], daemon=True).start()
    with server.makefile("rb") as stream:
        return [read_response(stream, op) for op, _ in pairs]


def main(path="", *keys):
    if not keys:
        raise ValueError(__doc__)
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    info = send_requests(server, [(INFO, 0)])[0].decode().split("\n")
    parse, show = (int, b"%d".__mod__) if "keys u64" in info else (str.encode, bytes)
    requests = [(op, parse(key)) for key in keys for op in (GET, EXISTS, FLOOR)]
    values = send_requests(server, requests)
    for (op, key), value in zip(requests, values):
        result = b"not found" if value is None else b"yes" if op == EXISTS else value
        if op == FLOOR and value is not None:
            below, value = only_row(value)
            result = show(below) + b" " + value
        sys.stdout.buffer.write(b"%s %s: %s\n" % ((b"get", b"exists", b"floor")[op], show(key), result))
    return 1 if None in values else 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (OSError, ValueError, LookupError, struct.error) as error:
        print(f"lookup.py: {error}", file=sys.stderr)
        sys.exit(2)
