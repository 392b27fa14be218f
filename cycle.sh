#!/usr/bin/env bash
# Runs the whole life cycle of a table, on a fresh clone with only Rust installed:
# builds the programs, generates rows, bakes and serves them, saturates the server,
# checks that it still responds correctly, and stops it. If a step fails, the script
# stops with a nonzero exit status.
#
# SECONDS_PER_RUN (default 10) is the duration of the saturation.
set -euo pipefail
cd "$(dirname "$0")"

ROWS=100000
READY_WITHIN_SECONDS=30
STOPPED_WITHIN_SECONDS=30
SECONDS_PER_RUN=${SECONDS_PER_RUN:-10}
BIN=${CARGO_TARGET_DIR:-target}/release

folder=
server=
job=

step() { printf '== %s\n' "$*"; }
fail() {
    printf 'cycle.sh: %s\n' "$*" >&2
    exit 1
}

# Every exit runs this function: after success, a failure, or a signal.
clean_up() {
    status=$?
    trap - EXIT
    trap '' HUP INT TERM
    [[ -z $job ]] || kill -TERM "$job" 2>/dev/null || true
    if [[ -n $server ]]; then
        kill -KILL "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    if ((status != 0 && status < 128)) && [[ -s $folder/server.log ]]; then
        printf 'cycle.sh: the last lines of the server log:\n' >&2
        tail -n 20 "$folder/server.log" >&2
    fi
    [[ -z $folder ]] || rm -rf "$folder"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a long command in the background and waits for it, because bash handles a
# signal only after the command in the foreground has ended.
run_interruptibly() {
    local status=0
    "$@" &
    job=$!
    wait "$job" || status=$?
    job=
    return "$status"
}

is_alive() { kill -0 "$server" 2>/dev/null; }

# Whether the server returns exactly the value of key 77777. A period is appended,
# because `$()` removes line ends, which would hide extra ones in the value.
serves_the_value() {
    local value
    value=$(timeout 10 "$BIN/zkv" get 77777 --socket "$socket" 2>"$folder/get.err" && printf .) &&
        [[ $value == value_content_at_key_77777. ]]
}

# The run has a separate folder and socket, so other servers are not disturbed. The
# path is short, because the path of a socket has at most 107 bytes.
folder=$(mktemp -d /tmp/zkv-cycle.XXXXXX)
socket=$folder/kv.sock

step "build"
run_interruptibly cargo build --release --locked

step "generate $ROWS rows"
paste -d , <(seq "$ROWS") <(seq -f 'value_content_at_key_%.0f' "$ROWS") >"$folder/input.csv"

step "bake"
run_interruptibly "$BIN/baker" "$folder/input.csv" --output "$folder/storage.db"

step "serve"
"$BIN/kv_store" --db "$folder/storage.db" --socket "$socket" 2>"$folder/server.log" &
server=$!
deadline=$((SECONDS + READY_WITHIN_SECONDS))
until serves_the_value; do
    is_alive || fail "the server exited before it served the table"
    ((SECONDS < deadline)) ||
        fail "the server did not return the value of key 77777 within $READY_WITHIN_SECONDS s: $(cat "$folder/get.err")"
    sleep 0.05
done

step "saturate for $SECONDS_PER_RUN s"
run_interruptibly "$BIN/benchmarker" --socket "$socket" --db "$folder/storage.db" --seconds "$SECONDS_PER_RUN"

step "check that the server still returns the right value"
is_alive || fail "the server exited under load"
serves_the_value || fail "the server no longer returns the value of key 77777: $(cat "$folder/get.err")"

step "stop"
kill -TERM "$server"
deadline=$((SECONDS + STOPPED_WITHIN_SECONDS))
while is_alive; do
    ((SECONDS < deadline)) || fail "the server did not stop within $STOPPED_WITHIN_SECONDS s of SIGTERM"
    sleep 0.05
done
status=0
wait "$server" || status=$?
server=
((status == 0)) || fail "the server exited with status $status, but 0 was expected"

step "done"
