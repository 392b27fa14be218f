// ioredis and node-redis: node cluster.mjs ioredis|node-redis PORT checks reads of a cluster, one of whose nodes has this
// port, from primaries and from replicas.
import Redis from "ioredis";
import { createCluster } from "redis";
import { expectValues, keys } from "./rows.mjs";

async function withIoredis(port) {
  for (const scaleReads of ["master", "slave"]) {
    const cluster = new Redis.Cluster([{ host: "127.0.0.1", port }], { scaleReads });
    expectValues(await Promise.all(keys(3000).map((key) => cluster.get(key))), keys(3000));
    cluster.disconnect();
  }
}

async function withNodeRedis(port) {
  for (const useReplicas of [false, true]) {
    const cluster = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }], useReplicas });
    await cluster.connect();
    expectValues(await Promise.all(keys(3000).map((key) => cluster.get(`${key}`))), keys(3000));
    cluster.destroy();
  }
}

const [client, port] = process.argv.slice(2);
await { ioredis: withIoredis, "node-redis": withNodeRedis }[client](Number(port));
