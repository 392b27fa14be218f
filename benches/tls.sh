#!/usr/bin/env bash
# Compares the processor time that kv_store and Redis use for a GET over TLS. The two
# servers alternate, and redis-benchmark is the client of both.
#
# benches/tls.sh [FOLDER]   takes a minute, and needs redis-server, redis-benchmark, and
#                           openssl. FOLDER (default: target/tls) is deleted at the
#                           start and at the end
#
# The variables ROWS=100000, REQUESTS=2000000, DEPTHS="16 1", CLIENTS=50, and ROUNDS=3
# can be set.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

ROWS=${ROWS:-100000}
REQUESTS=${REQUESTS:-2000000}
DEPTHS=${DEPTHS:-16 1}
CLIENTS=${CLIENTS:-50}
ROUNDS=${ROUNDS:-3}
folder=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/tls}")
programs=$(realpath -m "${CARGO_TARGET_DIR:-target}/release")

cargo build --release --quiet --features tls --bin baker --bin kv_store
rm -rf "$folder"
mkdir -p "$folder"
pids=()
trap '((${#pids[@]} == 0)) || kill "${pids[@]}"; rm -rf "$folder"' EXIT
cd "$folder"

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout key.pem -out certificate.pem 2>openssl.log
tls=(--tls --cacert certificate.pem)

# redis-benchmark replaces __rand_int__ by twelve digits. kv_store ignores leading zeros, and Redis does not.
awk -v rows="$ROWS" 'BEGIN { for (key = 0; key < rows; key++) printf "%d,value_content_at_%09d\n", key, key }' >rows.csv
awk -v rows="$ROWS" 'BEGIN { for (key = 0; key < rows; key++) printf "SET %012d value_content_at_%09d\n", key, key }' >rows.txt
"$programs/baker" --quiet -o rows.db rows.csv

# free_port: prints a TCP port that no process uses.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# wait_for PORT: waits until a server replies.
wait_for() {
    for ((attempt = 0; attempt < 100; attempt++)); do
        ! redis-cli "${tls[@]}" -p "$1" PING &>/dev/null || return 0
        sleep 0.1
    done
    printf 'no reply on port %s: see %s\n' "$1" "$folder" >&2
    return 1
}

ours=$(free_port)
"$programs/kv_store" --db rows.db --socket kv.sock --workers 1 \
    --tls "127.0.0.1:$ours" --tls-cert certificate.pem --tls-key key.pem 2>kv_store.log &
pids+=($!)
theirs=$(free_port)
redis-server --port 0 --tls-port "$theirs" --tls-cert-file certificate.pem --tls-key-file key.pem \
    --tls-ca-cert-file certificate.pem --tls-auth-clients no --save '' --appendonly no >redis.log &
pids+=($!)
wait_for "$ours"
wait_for "$theirs"
redis-cli "${tls[@]}" -p "$theirs" --pipe <rows.txt >/dev/null

# ticks PID: prints the processor time of a process, in hundredths of a second.
ticks() { awk '{ sub(/.*[)] /, ""); print $12 + $13 }' "/proc/$1/stat"; }

# ns_per_get PID PORT DEPTH: runs the load on a server, and prints its processor time per GET in nanoseconds.
ns_per_get() {
    local before
    before=$(ticks "$1")
    redis-benchmark "${tls[@]}" -p "$2" -n "$REQUESTS" -c "$CLIENTS" -P "$3" -r "$ROWS" -q get __rand_int__ >load.log
    awk -v ticks="$(($(ticks "$1") - before))" -v requests="$REQUESTS" 'BEGIN { printf "%.0f", ticks * 1e7 / requests }'
}

# expect_hits PORT: fails if a server was asked for a key that it does not have.
expect_hits() {
    local misses
    misses=$(redis-cli "${tls[@]}" -p "$1" INFO stats | tr -d '\r' | sed -n 's/^keyspace_misses://p')
    [[ $misses == 0 ]] || { printf 'the server on port %s did not find %s keys\n' "$1" "$misses" >&2; return 1; }
}

for depth in $DEPTHS; do
    for ((round = 1; round <= ROUNDS; round++)); do
        kv_store=$(ns_per_get "${pids[0]}" "$ours" "$depth")
        redis=$(ns_per_get "${pids[1]}" "$theirs" "$depth")
        awk -v depth="$depth" -v kv_store="$kv_store" -v redis="$redis" 'BEGIN {
            printf "%3d in flight: kv_store %5d ns, Redis %5d ns of processor time per GET: ratio %.2f\n",
                depth, kv_store, redis, kv_store / redis }'
    done
done
expect_hits "$ours"
expect_hits "$theirs"
