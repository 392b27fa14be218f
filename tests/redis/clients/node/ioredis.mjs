// ioredis: node ioredis.mjs SOCKET PORT [COUNT] checks reads and transactions, or one pipeline of COUNT GETs.
// node ioredis.mjs tls PORT CA checks reads and transactions over TLS as the user app with the password secret.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import Redis from "ioredis";
import { expectValues, keys, ROWS, value } from "./rows.mjs";

async function reads(redis) {
  assert.equal(await redis.ping(), "PONG");
  assert.equal(await redis.dbsize(), ROWS);
  assert.equal(await redis.get(7), value(7));
  assert.equal(await redis.get(ROWS), null);
  assert.deepEqual(await redis.mget(1, ROWS, 3), [value(1), null, value(3)]);
  assert.equal(await redis.exists(1, 1, ROWS), 2);
  assert.equal(await redis.strlen(7), value(7).length);
  assert.equal(await redis.getrange(7, 0, 4), value(7).slice(0, 5));
  assert.equal(await redis.type(7), "string");
  assert.equal(await redis.ttl(7), -1);
  const found = new Set();
  for await (const page of redis.scanStream()) for (const key of page) found.add(key);
  assert.equal(found.size, ROWS);
  assert.match(await redis.info(), /redis_version/);
  await assert.rejects(redis.set(1, "x"), /READONLY/);
  await assert.rejects(redis.call("NOSUCHCOMMAND"), /unknown command/);
}

// Each reply of a pipeline or transaction is a pair of an error and a value.
const values = (replies) => replies.map(([error, value]) => (assert.equal(error, null), value));

function gets(pipeline, count) {
  for (const key of keys(count)) pipeline.get(key);
  return pipeline;
}

async function transactions(redis) {
  expectValues(values(await gets(redis.multi(), 3000).exec()), keys(3000));
  await assert.rejects(redis.multi().get(7).set(1, "x").exec(), /EXECABORT/);
  await redis.watch(7);
  assert.equal(await redis.get(7), value(7));
  assert.deepEqual(values(await redis.multi().get(3).exists(ROWS).exec()), [value(3), 0]);
}

// Returns the addresses of the server, and the user.
function servers(path, port, ca) {
  if (path !== "tls") return [{ path }, { host: "127.0.0.1", port }];
  return [{ host: "localhost", port, username: "app", password: "secret", tls: { ca: readFileSync(ca) } }];
}

async function main(path, port, last) {
  const count = path === "tls" ? undefined : last;
  for (const server of servers(path, Number(port), last)) {
    const redis = new Redis({ ...server, retryStrategy: null });
    redis.on("error", () => {}); // Each call reports its own error.
    if (count) {
      expectValues(values(await gets(redis.pipeline(), Number(count)).exec()), keys(Number(count)));
      return redis.disconnect();
    }
    await reads(redis);
    await transactions(redis);
    redis.disconnect();
  }
}

await main(...process.argv.slice(2));
