// A session of ioredis. Usage: session.js HOST PORT
"use strict";

const assert = require("node:assert/strict");
const { Redis } = require("ioredis");

let passed = 0;
let failed = 0;

function check(what, actual, expected) {
  try {
    assert.deepEqual(actual, expected);
    passed += 1;
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${what}: ${String(error.message).slice(0, 400)}`);
  }
}

async function refused(what, promise, text) {
  const error = await promise.then(() => new Error("it was accepted"), (error) => error);
  check(what, error.message.includes(text) ? text : error.message, text);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function strings(r) {
  check("SET", await r.set("k", "v"), "OK");
  check("GET", await r.get("k"), "v");
  check("GET of nothing", await r.get("nothing"), null);
  check("SET NX on a key", await r.set("k", "w", "NX"), null);
  check("SET GET", await r.set("k", "w", "GET"), "v");
  check("APPEND", await r.append("k", "xyz"), 4);
  check("GETRANGE", await r.getrange("k", -3, -1), "xyz");
  check("INCRBY", [await r.incr("n"), await r.incrby("n", 41)], [1, 42]);
  check("MSET", await r.mset({ a: "1", b: "zwei" }), "OK");
  check("MGET", await r.mget("a", "nothing", "b"), ["1", null, "zwei"]);
  check("DEL", await r.del("a", "b", "nothing"), 2);
}

async function expiry(r) {
  await r.set("e", "v", "EX", 100);
  const ttl = await r.ttl("e");
  check("TTL", ttl >= 99 && ttl <= 100, true);
  check("PERSIST", await r.persist("e"), 1);
  check("PEXPIRE", await r.pexpire("e", 40), 1);
  await sleep(120);
  check("GET of what expired", await r.get("e"), null);
  check("TTL of nothing", await r.ttl("e"), -2);
}

async function keys(r) {
  await r.flushall();
  const names = Array.from({ length: 2500 }, (_, i) => `scan:${i}`);
  const pipeline = r.pipeline();
  names.forEach((name) => pipeline.set(name, name));
  const answers = await pipeline.exec();
  check("a pipeline of 2500", answers.every(([error, answer]) => error === null && answer === "OK"), true);
  const seen = new Set();
  for await (const found of r.scanStream({ match: "scan:*", count: 100 })) {
    found.forEach((name) => seen.add(name));
  }
  check("SCAN", [...seen].sort(), [...names].sort());
  check("DBSIZE", await r.dbsize(), 2500);
  check("RENAME", [await r.rename("scan:1", "renamed"), await r.get("renamed")], ["OK", "scan:1"]);
  check("EXISTS", await r.exists("renamed", "scan:1"), 1);
  check("UNLINK", await r.unlink("renamed", "scan:2"), 2);
  check("FLUSHDB", [await r.flushdb(), await r.dbsize()], ["OK", 0]);
}

async function binary(r) {
  const every = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  await r.set(every, every);
  check("binary key and value", (await r.getBuffer(every)).equals(every), true);
  await r.set("empty", "");
  check("empty value", await r.get("empty"), "");
  for (const size of [1 << 20, 5 * (1 << 20) + 3]) {
    const value = Buffer.alloc(size, every);
    await r.set("large", value);
    check(`a value of ${size} bytes`, (await r.getBuffer("large")).equals(value), true);
  }
}

async function errors(r) {
  await r.set("text", "abc");
  await refused("INCR of text", r.incr("text"), "ERR value is not an integer or out of range");
  await refused("an unknown command", r.call("NOSUCH", "x"), "ERR unknown command 'NOSUCH'");
  const answers = await r.pipeline().set("x", 1).incr("text").get("x").exec();
  check("an error inside a pipeline", answers.map(([error, answer]) => (error ? "error" : answer)), ["OK", "error", "1"]);
  check("the connection works on", await r.ping(), "PONG");
}

async function server(r) {
  check("INFO", (await r.info("server")).includes("redis_mode:standalone\r\n"), true);
  check("CLIENT SETNAME", [await r.client("SETNAME", "session"), await r.client("GETNAME")], ["OK", "session"]);
  const config = await r.config("GET", "maxmemory-policy");
  check("CONFIG GET", JSON.stringify(config).includes("noeviction"), true);
  check("COMMAND COUNT", (await r.command("COUNT")) > 10, true);
}

async function manyConnections(options) {
  const clients = Array.from({ length: 100 }, () => new Redis(options));
  const work = clients.map(async (client, number) => {
    for (let i = 0; i < 20; i += 1) {
      await client.set(`worker:${number}`, i);
      await client.incr("shared");
    }
    return client.get(`worker:${number}`);
  });
  check("100 connections at once", await Promise.all(work), clients.map(() => "19"));
  check("their common counter", await clients[0].get("shared"), "2000");
  clients.forEach((client) => client.disconnect());
}

async function main() {
  const [host, port] = process.argv.slice(2);
  for (const protocol of [2, 3]) {
    const options = { host, port: Number(port), protocol };
    const r = new Redis(options);
    await r.flushall();
    for (const part of [strings, expiry, keys, binary, errors, server]) {
      await part(r);
    }
    await r.flushall();
    r.disconnect();
    await manyConnections(options);
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed > 0 ? 1 : 0);
}

main().catch((error) => {
  console.log(`FAILED ${error.stack}`);
  process.exit(1);
});
