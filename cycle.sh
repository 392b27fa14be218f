#!/usr/bin/env bash
# The whole life of a table, on a fresh clone with only Rust installed: build,
# generate rows, bake them, serve them, saturate the server, check that it
# answers still, stop it. Any step that fails ends it with a non-zero exit.
#
# SECONDS_PER_RUN (default 10) is how long the saturation lasts.
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

# The one way out, for success, failure and signals alike.
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
        printf 'cycle.sh: the last lines of the server:\n' >&2
        tail -n 20 "$folder/server.log" >&2
    fi
    [[ -z $folder ]] || rm -rf "$folder"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs a long step in the background, since bash sees to a signal only after what
# runs in the foreground has ended.
attend() {
    local status=0
    "$@" &
    job=$!
    wait "$job" || status=$?
    job=
    return "$status"
}

is_alive() { kill -0 "$server" 2>/dev/null; }

# Exactly the value of key 77777, and not a byte more: `$()` drops line ends, so
# a full stop follows.
answers() {
    local answer
    answer=$(timeout 10 "$BIN/zkv" get 77777 --socket "$socket" 2>"$folder/answer.err" && printf .) &&
        [[ $answer == value_content_at_key_77777. ]]
}

# A folder and a socket of its own: a server that is running is not disturbed.
# Short, because a socket's path has 107 bytes at most.
folder=$(mktemp -d /tmp/zkv-cycle.XXXXXX)
socket=$folder/kv.sock

step "build"
attend cargo build --release --locked

step "generate $ROWS rows"
paste -d , <(seq "$ROWS") <(seq -f 'value_content_at_key_%.0f' "$ROWS") >"$folder/input.csv"

step "bake"
attend "$BIN/baker" "$folder/input.csv" --output "$folder/storage.db"

step "serve"
"$BIN/kv_store" --db "$folder/storage.db" --socket "$socket" 2>"$folder/server.log" &
server=$!
deadline=$((SECONDS + READY_WITHIN_SECONDS))
until answers; do
    is_alive || fail "the server ended before it answered"
    ((SECONDS < deadline)) || fail "no right answer within $READY_WITHIN_SECONDS s: $(cat "$folder/answer.err")"
    sleep 0.05
done

step "saturate for $SECONDS_PER_RUN s"
attend "$BIN/benchmarker" --socket "$socket" --db "$folder/storage.db" --seconds "$SECONDS_PER_RUN"

step "check that the server survived"
is_alive || fail "the server died under load"
answers || fail "the server no longer gives the value of key 77777: $(cat "$folder/answer.err")"

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
((status == 0)) || fail "the server ended with exit code $status, 0 was expected"

step "done"
