// Looks keys up in a Zero-KV server: node lookup.mjs SOCKET KEY...; exit status 0 found, 1 not found, 2 error.
import { createClient, RESP_TYPES } from "redis";

async function main(path, ...keys) {
  if (keys.length === 0) throw new Error("usage: node lookup.mjs SOCKET KEY...");
  const client = createClient({ socket: { path, reconnectStrategy: false } });
  client.on("error", () => {}); // Each call reports its own error.
  await client.connect();
  // Values are returned as Buffers, because they may be binary.
  const table = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  // The client sends concurrent calls in one pipeline.
  const replies = await Promise.all(
    keys.map((key) => Promise.all([table.get(key), table.exists(key), table.sendCommand(["ZKV.FLOOR", key])])),
  );
  for (const [i, [value, exists, row]] of replies.entries()) {
    if (!exists) process.exitCode = 1;
    const lines = {
      get: [value ?? "not found"],
      exists: [exists ? "yes" : "not found"],
      floor: row ? [row[0], " ", row[1]] : ["not found"],
    };
    for (const [name, result] of Object.entries(lines))
      for (const piece of [`${name} ${keys[i]}: `, ...result, "\n"]) process.stdout.write(piece);
  }
  client.destroy();
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(`lookup: ${error.message}`);
  process.exit(2);
});
