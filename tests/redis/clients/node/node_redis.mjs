// node-redis: node node_redis.mjs SOCKET PORT [COUNT] checks reads and transactions, or one pipeline of COUNT GETs.
// node node_redis.mjs tls PORT CA checks reads and transactions over TLS as the user app with the password secret.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createClient } from "redis";
import { expectValues, keys, ROWS, value } from "./rows.mjs";

async function reads(client) {
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.dbSize(), ROWS);
  assert.equal(await client.get("7"), value(7));
  assert.equal(await client.get(`${ROWS}`), null);
  assert.deepEqual(await client.mGet(["1", `${ROWS}`, "3"]), [value(1), null, value(3)]);
  assert.equal(await client.exists(["1", "1", `${ROWS}`]), 2);
  assert.equal(await client.strLen("7"), value(7).length);
  assert.equal(await client.getRange("7", 0, 4), value(7).slice(0, 5));
  assert.equal(await client.type("7"), "string");
  assert.equal(await client.ttl("7"), -1);
  const found = new Set();
  for await (const page of client.scanIterator()) for (const key of page) found.add(key);
  assert.equal(found.size, ROWS);
  assert.match(await client.info(), /redis_version/);
  await assert.rejects(client.set("1", "x"), /READONLY/);
  await assert.rejects(client.sendCommand(["NOSUCHCOMMAND"]), /unknown command/);
}

function gets(multi, count) {
  for (const key of keys(count)) multi.get(`${key}`);
  return multi;
}

// The client sends concurrent calls in one pipeline.
async function concurrentCalls(client) {
  expectValues(await Promise.all(keys(3000).map((key) => client.get(`${key}`))), keys(3000));
}

async function transactions(client) {
  expectValues(await gets(client.multi(), 3000).exec(), keys(3000));
  await assert.rejects(client.multi().get("7").set("1", "x").exec(), /READONLY|EXECABORT/);
  await client.watch("7");
  assert.equal(await client.get("7"), value(7));
  assert.deepEqual(await client.multi().get("3").exists(`${ROWS}`).exec(), [value(3), 0]);
}

// Returns the addresses of the server, and the user.
function servers(path, port, ca) {
  if (path !== "tls") return [{ socket: { path } }, { socket: { host: "127.0.0.1", port } }];
  const socket = { host: "localhost", port, tls: true, ca: readFileSync(ca) };
  return [{ socket, username: "app", password: "secret" }];
}

async function main(path, port, last) {
  const count = path === "tls" ? undefined : last;
  for (const { socket, ...user } of servers(path, Number(port), last)) {
    const client = createClient({ ...user, socket: { ...socket, reconnectStrategy: false } });
    client.on("error", () => {}); // Each call reports its own error.
    await client.connect();
    if (count) {
      expectValues(await gets(client.multi(), Number(count)).execAsPipeline(), keys(Number(count)));
      return client.destroy();
    }
    await reads(client);
    await concurrentCalls(client);
    await transactions(client);
    client.destroy();
  }
}

await main(...process.argv.slice(2));
