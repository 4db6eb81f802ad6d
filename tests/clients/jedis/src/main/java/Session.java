// A session of Jedis, in RESP2 and in RESP3. Usage: Session HOST PORT

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

public final class Session {
    private static int passed;
    private static int failed;

    public static void main(String[] args) throws InterruptedException {
        HostAndPort address = new HostAndPort(args[0], Integer.parseInt(args[1]));
        for (RedisProtocol protocol : RedisProtocol.values()) {
            DefaultJedisClientConfig config =
                DefaultJedisClientConfig.builder().protocol(protocol).socketTimeoutMillis(10000).build();
            try (Jedis r = new Jedis(address, config)) {
                r.flushAll();
                strings(r);
                expiry(r);
                keys(r);
                binary(r);
                errors(r);
                server(r);
                r.flushAll();
            }
            manyConnections(address, config);
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed > 0 ? 1 : 0);
    }

    private static void check(String what, Object actual, Object expected) {
        if (Objects.equals(actual, expected)) {
            passed++;
        } else {
            failed++;
            System.out.println("FAILED " + what + ": " + actual + ", expected " + expected);
        }
    }

    private static void refused(String what, Runnable call, String text) {
        try {
            call.run();
            check(what, "accepted", text);
        } catch (JedisDataException error) {
            check(what, error.getMessage().contains(text) ? text : error.getMessage(), text);
        }
    }

    private static void strings(Jedis r) {
        check("SET", r.set("k", "v"), "OK");
        check("GET", r.get("k"), "v");
        check("GET of nothing", r.get("nothing"), null);
        check("SET NX on a key", r.set("k", "w", SetParams.setParams().nx()), null);
        check("SET GET", r.setGet("k", "w"), "v");
        check("APPEND", r.append("k", "xyz"), 4L);
        check("GETRANGE", r.getrange("k", -3, -1), "xyz");
        check("INCRBY", List.of(r.incr("n"), r.incrBy("n", 41), r.decr("n")), List.of(1L, 42L, 41L));
        check("INCRBYFLOAT", r.incrByFloat("f", 1.5), 1.5);
        check("MSET", r.mset("a", "1", "b", "zwei"), "OK");
        check("MGET", r.mget("a", "nothing", "b"), Arrays.asList("1", null, "zwei"));
        check("MSETNX", r.msetnx("a", "2", "new", "3"), 0L);
        check("GETDEL", r.getDel("a"), "1");
        check("DEL", r.del("a", "b", "nothing"), 1L);
    }

    private static void expiry(Jedis r) throws InterruptedException {
        r.setex("e", 100, "v");
        check("TTL", r.ttl("e") >= 99 && r.ttl("e") <= 100, true);
        check("PERSIST", r.persist("e"), 1L);
        check("TTL without a deadline", r.ttl("e"), -1L);
        check("PEXPIRE", r.pexpire("e", 40), 1L);
        Thread.sleep(120);
        check("GET of what expired", r.get("e"), null);
        check("TTL of nothing", r.ttl("e"), -2L);
    }

    private static void keys(Jedis r) {
        r.flushAll();
        Set<String> names = new HashSet<>();
        Pipeline pipeline = r.pipelined();
        for (int i = 0; i < 2500; i++) {
            names.add("scan:" + i);
            pipeline.set("scan:" + i, "v" + i);
        }
        List<Object> answers = pipeline.syncAndReturnAll();
        check("a pipeline of 2500", answers.stream().filter("OK"::equals).count(), 2500L);
        Set<String> seen = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> found = r.scan(cursor, new ScanParams().match("scan:*").count(100));
            seen.addAll(found.getResult());
            cursor = found.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        check("SCAN", seen, names);
        check("DBSIZE", r.dbSize(), 2500L);
        check("RENAME", r.rename("scan:1", "renamed"), "OK");
        check("EXISTS", r.exists("renamed", "scan:1"), 1L);
        check("TYPE", r.type("renamed"), "string");
        check("COPY", r.copy("renamed", "copy", false), true);
        check("UNLINK", r.unlink("renamed", "copy"), 2L);
        check("FLUSHDB", r.flushDB(), "OK");
    }

    private static void binary(Jedis r) {
        byte[] every = new byte[256];
        for (int i = 0; i < every.length; i++) {
            every[i] = (byte) i;
        }
        r.set(every, every);
        check("binary key and value", Arrays.equals(r.get(every), every), true);
        r.set("empty", "");
        check("empty value", r.get("empty"), "");
        for (int size : new int[] {1 << 20, 5 * (1 << 20) + 3}) {
            byte[] value = new byte[size];
            for (int i = 0; i < size; i++) {
                value[i] = (byte) (i * 31);
            }
            r.set("large".getBytes(), value);
            check("a value of " + size + " bytes", Arrays.equals(r.get("large".getBytes()), value), true);
        }
    }

    private static void errors(Jedis r) {
        r.set("text", "abc");
        refused("INCR of text", () -> r.incr("text"), "ERR value is not an integer or out of range");
        refused("an unknown command", () -> r.sendCommand(() -> "NOSUCH".getBytes(), "x"), "ERR unknown command 'NOSUCH'");
        Pipeline pipeline = r.pipelined();
        Response<String> first = pipeline.set("x", "1");
        Response<Long> second = pipeline.incr("text");
        Response<String> third = pipeline.get("x");
        pipeline.sync();
        check("around an error in a pipeline", List.of(first.get(), third.get()), List.of("OK", "1"));
        refused("an error in a pipeline", second::get, "ERR value is not an integer");
        check("the connection works on", r.ping(), "PONG");
    }

    private static void server(Jedis r) {
        check("INFO", r.info("server").contains("redis_mode:standalone\r\n"), true);
        check("CONFIG GET", r.configGet("maxmemory-policy"), Map.of("maxmemory-policy", "noeviction"));
        check("CLIENT SETNAME", r.clientSetname("session"), "OK");
        check("CLIENT GETNAME", r.clientGetname(), "session");
        check("CLIENT ID", r.clientId() > 0, true);
        check("SELECT", r.select(1), "OK");
        check("another database", r.get("text"), null);
        check("SELECT back", r.select(0), "OK");
    }

    private static void manyConnections(HostAndPort address, DefaultJedisClientConfig config) throws InterruptedException {
        AtomicInteger right = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 40; number++) {
            String key = "worker:" + number;
            Thread thread = new Thread(() -> {
                try (Jedis own = new Jedis(address, config)) {
                    for (int i = 0; i < 50; i++) {
                        own.set(key, "" + i);
                        own.incr("shared");
                    }
                    right.addAndGet(own.get(key).equals("49") ? 1 : 0);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        check("40 connections at once", right.get(), 40);
        try (Jedis own = new Jedis(address, config)) {
            check("their common counter", own.get("shared"), "2000");
        }
    }
}
