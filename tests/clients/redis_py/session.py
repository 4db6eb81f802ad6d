"""A session of redis-py, in RESP2 and in RESP3. Usage: session.py HOST PORT"""

import sys
import threading
import time

import redis

passed = failed = 0


def check(what, actual, expected):
    global passed, failed
    if actual == expected:
        passed += 1
    else:
        failed += 1
        print(f"FAILED {what}: {actual!r:.200}, expected {expected!r:.200}")


def refused(what, call, kind, text):
    try:
        answer = call()
    except redis.RedisError as error:
        check(what, (type(error).__name__, text in str(error)), (kind, True))
    else:
        check(what, answer, f"{kind}: {text}")


def strings(r):
    check("SET", r.set("k", "v"), True)
    check("GET", r.get("k"), b"v")
    check("GET of nothing", r.get("nothing"), None)
    check("SET NX on a key", r.set("k", "w", nx=True), None)
    check("SET GET", r.set("k", "w", get=True), b"v")
    check("SETRANGE", r.setrange("k", 2, "xy"), 4)
    check("GETRANGE", r.getrange("k", 0, -1), b"w\0xy")
    check("APPEND", r.append("k", "!"), 5)
    check("INCRBY", [r.incr("n"), r.incrby("n", 41), r.decr("n", 2)], [1, 42, 40])
    check("INCRBYFLOAT", r.incrbyfloat("f", 1.5), 1.5)
    check("MSET", r.mset({"a": 1, "b": "zwei", "c": b"\xff\0"}), True)
    check("MGET", r.mget("a", "nothing", "b", "c"), [b"1", None, b"zwei", b"\xff\0"])
    check("MSETNX", r.msetnx({"a": 2, "new": 3}), False)
    check("GETDEL", (r.getdel("a"), r.get("a")), (b"1", None))
    check("DEL", r.delete("b", "c", "nothing"), 2)


def expiry(r):
    r.set("e", "v", ex=100)
    check("TTL", 99 <= r.ttl("e") <= 100, True)
    check("GETEX PERSIST", r.getex("e", persist=True), b"v")
    check("TTL without a deadline", r.ttl("e"), -1)
    check("EXPIRE GT", r.expire("e", 10, gt=True), False)
    check("PEXPIRE", r.pexpire("e", 40), True)
    time.sleep(0.12)
    check("GET of what expired", r.get("e"), None)
    check("TTL of nothing", r.ttl("e"), -2)


def keys(r):
    r.flushall()
    names = {b"scan:%d" % i for i in range(2500)}
    with r.pipeline(transaction=False) as p:
        for name in names:
            p.set(name, name)
        check("a pipeline of 2500", p.execute(), [True] * 2500)
    check("SCAN", set(r.scan_iter(match="scan:*", count=100)), names)
    check("KEYS", sorted(r.keys("scan:1?")), sorted(b"scan:1%d" % i for i in range(10)))
    check("DBSIZE", r.dbsize(), 2500)
    check("EXISTS", r.exists("scan:1", "scan:2", "nothing"), 2)
    check("RENAME", (r.rename("scan:1", "renamed"), r.get("renamed")), (True, b"scan:1"))
    check("TYPE", (r.type("renamed"), r.type("nothing")), (b"string", b"none"))
    check("COPY", (r.copy("renamed", "copy"), r.get("copy")), (True, b"scan:1"))
    check("FLUSHDB", (r.flushdb(), r.dbsize()), (True, 0))


def binary(r):
    every_byte = bytes(range(256))
    check("binary key and value", (r.set(every_byte, every_byte), r.get(every_byte)), (True, every_byte))
    check("empty value", (r.set("empty", b""), r.get("empty")), (True, b""))
    check("looks like RESP", (r.set("resp", b"$-1\r\n"), r.get("resp")), (True, b"$-1\r\n"))
    for size in (1 << 20, 5 * (1 << 20) + 3):
        value = (every_byte * (size // 256 + 1))[:size]
        r.set("large", value)
        check(f"a value of {size} bytes", (r.get("large") == value, r.strlen("large")), (True, size))
    check("the end of a large value", r.getrange("large", -3, -1), value[-3:])


def errors(r):
    r.set("text", "abc")
    refused("INCR of text", lambda: r.incr("text"), "ResponseError", "value is not an integer or out of range")
    refused("an unknown command", lambda: r.execute_command("NOSUCH", "x"), "ResponseError", "unknown command 'NOSUCH'")
    refused("too few arguments", lambda: r.execute_command("GET"), "ResponseError", "wrong number of arguments")
    with r.pipeline(transaction=False) as p:
        p.set("x", 1).incr("text").get("x")
        answers = p.execute(raise_on_error=False)
    check("an error inside a pipeline", [answers[0], type(answers[1]).__name__, answers[2]], [True, "ResponseError", b"1"])
    check("the connection works on", r.ping(), True)


def server(r, protocol):
    r.client_setname("session")
    check("CLIENT GETNAME", r.client_getname() in (b"session", "session"), True)
    check("CLIENT ID", r.client_id() > 0, True)
    check("INFO", r.info("server")["redis_mode"], "standalone")
    r.set("counted", 1)
    check("INFO keyspace", r.info("keyspace")["db0"]["keys"] > 0, True)
    check("CONFIG GET", r.config_get("maxmemory-policy"), {"maxmemory-policy": "noeviction"})
    check("CONFIG SET", r.config_set("slowlog-max-len", 128), True)
    check("COMMAND COUNT", r.command_count() > 10, True)
    hello = r.execute_command("HELLO")
    if isinstance(hello, list):
        hello = dict(zip(hello[::2], hello[1::2]))
    check("HELLO", hello.get(b"proto", hello.get("proto")), protocol)
    check("TIME", abs(r.time()[0] - time.time()) < 5, True)
    check("SELECT", (r.select(1), r.get("counted"), r.select(0)), (True, None, True))


def many_connections(host, port, protocol):
    counts = []

    def worker(number):
        with redis.Redis(host=host, port=port, protocol=protocol) as own:
            for i in range(50):
                own.set(f"worker:{number}", i)
                own.incr("shared")
            counts.append(int(own.get(f"worker:{number}")))

    threads = [threading.Thread(target=worker, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("40 connections at once", counts, [49] * 40)
    with redis.Redis(host=host, port=port, protocol=protocol) as own:
        check("their common counter", own.get("shared"), b"2000")
    open_ones = [redis.Redis(host=host, port=port, protocol=protocol, single_connection_client=True) for _ in range(200)]
    check("200 open connections", all(one.ping() for one in open_ones), True)
    for one in open_ones:
        one.close()


def main():
    host, port = sys.argv[1], int(sys.argv[2])
    for protocol in (2, 3):
        with redis.Redis(host=host, port=port, protocol=protocol, single_connection_client=True) as r:
            r.flushall()
            for part in (strings, expiry, keys, binary, errors):
                part(r)
            server(r, protocol)
            r.flushall()
        many_connections(host, port, protocol)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
