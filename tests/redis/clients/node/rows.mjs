// The rows of the server, and the keys of a pipeline.
import assert from "node:assert/strict";

export const ROWS = 10_000;

export const value = (key) => `${key}:`.padEnd(20 + ((key * 7919) % 981), String.fromCharCode(97 + (key % 26)));

export const keys = (count) => Array.from({ length: count }, (_, i) => (i * 7) % (ROWS + 7));

export function expectValues(found, keys) {
  assert.equal(found.length, keys.length);
  for (const [i, key] of keys.entries()) assert.equal(found[i], key < ROWS ? value(key) : null, `GET ${key}`);
}
