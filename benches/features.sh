#!/usr/bin/env bash
# Compares kv_store with Redis as an online feature store: rows with 51 fields, HGETALL, keys with a Zipf distribution,
# 200 connections, 1 and 16 commands in flight. The public feature-store load has 95 HGETALL for 5 writes; here, reads
# stand in for the writes, because kv_store has no writes. Prints throughput, latencies, and the memory of both servers.
#
# benches/features.sh [FOLDER]   needs redis-server, and space for the table in FOLDER (default: target/features), which
#                                is deleted at the end
#
# The variables ROWS=100000, SECONDS_PER_RUN=5, ROUNDS=3, and BAKER=PATH can be set.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

ROWS=${ROWS:-100000}
SECONDS_PER_RUN=${SECONDS_PER_RUN:-5}
ROUNDS=${ROUNDS:-3}
target=${CARGO_TARGET_DIR:-target}
folder=$(realpath -m "${1:-$target/features}")

cargo build --release --quiet --bin kv_store
[[ -n ${BAKER:-} ]] || cargo build --release --quiet --bin baker
baker=${BAKER:-$target/release/baker}
features=$(cargo bench --bench features --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"name":"features".*"executable":"\([^"]*\)".*/\1/p')

mkdir -p "$folder"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

"$features" rows "$ROWS" | "$baker" --header --key id --types "$("$features" types)" -o "$folder/storage.db" -

"$target/release/kv_store" --db "$folder/storage.db" --socket "$folder/kv.sock" 2>"$folder/kv.log" &
pids+=($!)
redis-server --port 0 --save '' --appendonly no --unixsocket "$folder/redis.sock" >"$folder/redis.log" &
pids+=($!)
until [[ -S $folder/kv.sock && -S $folder/redis.sock ]]; do sleep 0.1; done

# memory PID: prints the resident memory of a process in bytes.
memory() {
    awk '/^VmRSS:/ { print $2 * 1024 }' "/proc/$1/status"
}

redis_empty=$(memory "${pids[1]}")
"$features" fill "$folder/redis.sock" "$ROWS"

echo "| server | in flight per connection | commands/s | median | 99th percentile |"
echo "|---|---:|---:|---:|---:|"
for _ in $(seq "$ROUNDS"); do
    for depth in 1 16; do
        for server in kv redis; do
            echo "| $server | $("$features" load "$folder/$server.sock" "$ROWS" "$depth" "$SECONDS_PER_RUN") |"
        done
    done
done

echo
echo "| server | resident memory | bytes per row | extrapolated to 10 million rows |"
echo "|---|---:|---:|---:|"
# kv_store maps the table, so its resident memory includes the pages of the table that it has read.
file=$(stat -c %s "$folder/storage.db")
kv=$(memory "${pids[0]}")
redis=$(memory "${pids[1]}")
awk -v rows="$ROWS" -v kv="$kv" -v file="$file" -v redis="$redis" -v empty="$redis_empty" 'BEGIN {
    printf "| kv_store | %.0f MB, table %.0f MB | %.0f | %.2f GB |\n", kv / 1e6, file / 1e6, file / rows, file / rows * 1e7 / 1e9
    printf "| redis | %.0f MB | %.0f | %.2f GB |\n", redis / 1e6, (redis - empty) / rows, (redis - empty) / rows * 1e7 / 1e9
}'
