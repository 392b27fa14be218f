"""Tests lookup.py with the vectors: python3 check_vectors.py ../../../tests/vectors"""

import io
import json
import pathlib
import sys

import lookup

OPS = {"get": lookup.GET, "exists": lookup.EXISTS, "floor": lookup.FLOOR}


def read(op, answer):
    """Decodes a response with lookup.py, and returns it in the form of the vectors."""
    value = lookup.read_response(io.BytesIO(answer), op)
    if value is None:
        return {"status": "not found"}
    if op == lookup.FLOOR:
        key, value = lookup.only_row(value)
        text = str(key) if isinstance(key, int) else key.hex()
        return {"status": "ok", "rows": [[text, value.hex()]], "more": False}
    return {"status": "ok", "value": value.hex()} if op == lookup.GET else {"status": "ok"}


def main(folder):
    passed = 0
    for kind in ["numbers", "bytes"]:
        for vector in json.loads((folder / f"{kind}.json").read_text())["vectors"]:
            ask = vector.get("ask", {})
            if ask.get("op") in OPS:
                op = OPS[ask["op"]]
                key = int(ask["key"]) if kind == "numbers" else bytes.fromhex(ask["key"])
                assert lookup.request(op, key).hex() == vector["request"], vector["name"]
                assert read(op, bytes.fromhex(vector["answer"])) == vector["says"], vector["name"]
                passed += 1
    for vector in json.loads((folder / "refused.json").read_text())["vectors"]:
        if vector["part"] == "header" and vector["ask"]["op"] in OPS:
            try:
                found = read(OPS[vector["ask"]["op"]], bytes.fromhex(vector["answer"]))
            except ValueError:
                passed += 1
            else:
                raise AssertionError(f"{vector['name']}: {found}")
    print(f"{passed} vectors")


main(pathlib.Path(sys.argv[1]))
