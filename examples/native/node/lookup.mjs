// Looks keys up in a Zero-KV server: node lookup.mjs SOCKET KEY...; exit status 0 found, 1 not found, 2 error.
import net from "node:net";

const [GET, EXISTS, FLOOR, INFO, LONG] = [0, 1, 2, 6, 1 << 16];
const [OK, NOT_FOUND, ERROR] = [0, 1, 2];
const LEN_MAX_BYTES = { [GET]: 2 ** 30, [EXISTS]: 0, [FLOOR]: 1_073_811_464, [INFO]: 65_536 };

/** Encodes a request for a key, which is a BigInt or a Buffer. */
function request(op, key) {
  const isNumber = typeof key === "bigint";
  const frame = Buffer.alloc(isNumber ? 16 : Math.ceil((8 + key.length) / 16) * 16);
  frame.writeUInt32BE(isNumber ? op : LONG + op, 0);
  if (isNumber) frame.writeBigUInt64BE(key, 8);
  else key.copy(frame, frame.writeUInt32BE(key.length, 4));
  return frame;
}

/** Returns a function that reads the given number of bytes. */
function reader(socket) {
  const chunks = socket[Symbol.asyncIterator]();
  let rest = Buffer.alloc(0);
  return async (len) => {
    const parts = [rest];
    for (let arrived = rest.length; arrived < len; arrived += parts.at(-1).length) {
      const { done, value } = await chunks.next();
      if (done) throw new Error(`the connection ended after ${arrived} of ${len} bytes of a response`);
      parts.push(value);
    }
    const all = parts.length > 1 ? Buffer.concat(parts) : rest;
    rest = all.subarray(len);
    return all.subarray(0, len);
  };
}

/** Reads a response. Returns its value, or null if the table does not have the row. */
async function readResponse(read, op) {
  const header = await read(8);
  const [status, len] = [header.readUInt32BE(0), header.readUInt32BE(4)];
  if (status > ERROR || len > (status === OK ? LEN_MAX_BYTES[op] : 0))
    throw new Error(`a response to op ${op} has status ${status} and ${len} bytes: is this a kv_store?`);
  if (status === ERROR) throw new Error(`the server responded to op ${op} with an error: see its log`);
  return status === OK ? read(len) : null;
}

/** Returns the key, a space, and the value of a response to FLOOR, which is a page of one row. */
function onlyRow(page) {
  const isNumber = page.readUInt8(4) === 1;
  const keyEnd = isNumber ? 16 : 10 + page.readUInt16LE(8);
  const at = Math.ceil(keyEnd / 8) * 8 + 8;
  const end = at + page.readUInt32BE(at - 4);
  if (end > page.length) throw new Error(`a response of ${page.length} bytes is not one row: is this a kv_store?`);
  return [isNumber ? `${page.readBigUInt64LE(8)}` : page.subarray(10, keyEnd), " ", page.subarray(at, end)];
}

async function main(path, ...keys) {
  if (keys.length === 0) throw new Error("usage: node lookup.mjs SOCKET KEY...");
  const socket = net.connect(path);
  const read = reader(socket);
  socket.write(request(INFO, 0n));
  const hasNumbers = (await readResponse(read, INFO))?.includes("\nkeys u64\n");
  const requests = keys.flatMap((key) => [GET, EXISTS, FLOOR].map((op) => [op, key]));
  // Node sends in the background while responses are read, so client and server never wait for each other forever.
  for (const [op, key] of requests) socket.write(request(op, hasNumbers ? BigInt(key) : Buffer.from(key)));
  for (const [op, key] of requests) {
    const value = await readResponse(read, op);
    if (value === null) process.exitCode = 1;
    const result = value === null ? ["not found"] : op === EXISTS ? ["yes"] : op === FLOOR ? onlyRow(value) : [value];
    for (const piece of [`${["get", "exists", "floor"][op]} ${key}: `, ...result, "\n"]) process.stdout.write(piece);
  }
  socket.end();
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(`lookup: ${error.message}`);
  process.exit(2);
});
