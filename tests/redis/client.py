"""Checks redis-py against kv_store and Redis; python.rs runs this script.

The servers have the rows of served.rs. `--ours` adds checks that only kv_store passes.
"""

import argparse
import threading

import redis

arguments = argparse.ArgumentParser()
arguments.add_argument("--unix")
arguments.add_argument("--tcp")
arguments.add_argument("--tls-ca", help="use TLS, and trust this authority")
arguments.add_argument("--tls-cert")
arguments.add_argument("--tls-key")
arguments.add_argument("--url", action="store_true", help="connect by a URL")
arguments.add_argument("--protocol", type=int)
arguments.add_argument("--ours", action="store_true")
arguments = arguments.parse_args()

ROWS = 1006


def connect(**options):
    if arguments.protocol and redis.VERSION >= (5,):
        options["protocol"] = arguments.protocol
    if arguments.unix:
        return redis.Redis(unix_socket_path=arguments.unix, **options)
    if arguments.tls_ca:
        options |= {"ssl_ca_certs": arguments.tls_ca, "ssl_certfile": arguments.tls_cert, "ssl_keyfile": arguments.tls_key}
        if arguments.url:
            return redis.Redis.from_url(f"rediss://{arguments.tcp}", **options)
        options["ssl"] = True
    host, port = arguments.tcp.rsplit(":", 1)
    return redis.Redis(host=host, port=int(port), **options)


def value(key):
    return b"value_content_at_key_%d" % key


def expect(found, expected):
    assert found == expected, f"{found!r} where {expected!r} was expected"


def assert_error(kind, text, call):
    try:
        found = call()
    except kind as error:
        assert text in str(error), f"{error} where {text!r} was expected"
    else:
        raise AssertionError(f"{found!r} where an error was expected")


def lookups(client):
    expect(client.get(7), value(7))
    expect(client.get("7"), value(7))
    expect(client.get(2000), None)
    expect(client[7], value(7))
    expect(7 in client, True)
    expect(2000 in client, False)
    expect(client.get(2**64 - 1), b"last")
    expect(client.get(1000), b"")
    expect(client.get(1001), bytes(range(256)))
    expect(len(client.get(1002)), 100_000)
    expect(client.mget(1, 2000, 3), [value(1), None, value(3)])
    expect(client.mget(list(range(1000))), [value(key) for key in range(1000)])
    expect(client.exists(1, 1, 2000), 2)
    expect(client.strlen(7), len(value(7)))
    expect(client.getrange(7, 0, 4), b"value")
    expect(client.getrange(7, -1, -1), b"7")
    expect(client.type(7), b"string")
    expect(client.type(2000), b"none")
    expect((client.ttl(7), client.pttl(7), client.ttl(2000)), (-1, -1, -2))
    assert client.memory_usage(7) > len(value(7))
    expect(client.memory_usage(2000), None)
    assert client.object("encoding", 7) in (b"embstr", b"raw", b"int")


def keys(client):
    expected = {b"%d" % key for key in [*range(1005), 2**64 - 1]}
    expect(client.dbsize(), ROWS)
    expect(set(client.keys()), expected)
    expect(set(client.scan_iter()), expected)
    expect(set(client.scan_iter(count=1000)), expected)
    expect(set(client.scan_iter(match="99?")), {b"99%d" % digit for digit in range(10)})
    assert client.randomkey() in expected


def pipelines(client):
    with client.pipeline(transaction=False) as pipe:
        for key in range(500):
            pipe.get(key)
        pipe.exists(2000)
        expect(pipe.execute(), [value(key) for key in range(500)] + [0])
    with client.pipeline(transaction=False) as pipe:
        pipe.get(1).execute_command("NOSUCHCOMMAND").get(2)
        first, error, last = pipe.execute(raise_on_error=False)
        expect((first, last), (value(1), value(2)))
        assert isinstance(error, redis.ResponseError), error


def transactions(client):
    with client.pipeline() as pipe:
        for key in range(500):
            pipe.get(key)
        expect(pipe.execute(), [value(key) for key in range(500)])
    with client.pipeline() as pipe:
        pipe.get(1).execute_command("NOSUCHCOMMAND").get(2)
        assert_error(redis.ResponseError, "NOSUCHCOMMAND", pipe.execute)
    with client.pipeline() as pipe:
        pipe.watch("7")
        expect(pipe.get(7), value(7))
        pipe.multi()
        pipe.get(7).exists(2000)
        expect(pipe.execute(), [value(7), 0])
    expect(client.transaction(lambda pipe: (pipe.multi(), pipe.get(3)), "3", "4"), [value(3)])


def long_pipelines(client):
    keys = [key % 1000 for key in range(50_000)]
    for transaction in (False, True):
        with client.pipeline(transaction=transaction) as pipe:
            for key in keys:
                pipe.get(key)
            expect(pipe.execute(), [value(key) for key in keys])


def threads(client):
    errors = []

    def look_up():
        try:
            for key in range(200):
                expect(client.get(key), value(key))
        except Exception as error:
            errors.append(error)

    clients = [threading.Thread(target=look_up) for _ in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    expect(errors, [])


def connection(client):
    expect(client.ping(), True)
    expect(client.echo("hello"), b"hello")
    seconds, microseconds = client.time()
    assert seconds > 1_600_000_000 and 0 <= microseconds < 1_000_000
    info = client.info()
    expect(info["db0"]["keys"], ROWS)
    expect(client.info("keyspace")["db0"]["expires"], 0)
    expect(client.config_get("maxmemory-nothing"), {})
    assert client.command_count() > 20
    commands = client.command()
    expect(commands["get"]["arity"], 2)
    expect((commands["mget"]["first_key_pos"], commands["mget"]["last_key_pos"]), (1, -1))
    named = connect(client_name="me", decode_responses=True)
    expect(named.client_getname(), "me")
    expect(named.get(7), value(7).decode())
    assert named.client_id() > 0
    assert any(each["name"] == "me" for each in named.client_list())
    expect(named.client_info()["name"], "me")
    expect(connect(db=0).get(7), value(7))
    assert_error(redis.ResponseError, "out of range", lambda: connect(db=1).get(7))
    assert_error(redis.ResponseError, "unknown command", lambda: client.execute_command("NOSUCHCOMMAND"))
    assert_error(redis.ResponseError, "wrong number of arguments", lambda: client.execute_command("GET"))
    # In RESP3 the password travels in HELLO with the name of the default user, whom Redis accepts with any password.
    if client.client_info()["resp"] == "2":
        assert_error(redis.RedisError, "without any password configured", lambda: connect(password="secret").get(7))


def administration(client):
    other = connect(client_name="other", single_connection_client=True)
    with client.monitor() as monitor:
        expect(other.get(7), value(7))
        expect(monitor.next_command()["command"], "GET 7")
        expect(other.echo("two words"), b"two words")
        expect(monitor.next_command()["command"], "ECHO two words")
    expect(client.client_kill_filter(_id=other.client_id()), 1)


def ours(client):
    if arguments.unix:
        administration(client)
    assert_error(redis.exceptions.ReadOnlyError, "", lambda: client.set(1, "x"))
    assert_error(redis.exceptions.ReadOnlyError, "", lambda: client.delete(1))
    assert_error(redis.ResponseError, "", lambda: client.get("no number"))
    expect(client.get("0007"), value(7))


for part in [lookups, keys, pipelines, transactions, long_pipelines, threads, connection] + [ours] * arguments.ours:
    part(connect())
