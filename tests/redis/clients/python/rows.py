"""The rows of the server, and the keys of a pipeline."""

ROWS = 10_000
MISSING = str(ROWS)


def value(key):
    return f"{key}:".ljust(20 + key * 7919 % 981, chr(97 + key % 26)).encode()


# Of the keys of a pipeline, one in 1,430 is missing.
def keys(count):
    return [i * 7 % (ROWS + 7) for i in range(count)]


def expect(found, expected):
    assert found == expected, f"{found!r:.200} where {expected!r:.200} was expected"


def expect_values(found, keys):
    expect(len(found), len(keys))
    for key, reply in zip(keys, found):
        expect(reply, value(key) if key < ROWS else None)
