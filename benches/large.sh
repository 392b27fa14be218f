#!/usr/bin/env bash
# Measures bakes of up to 100 million rows: rows per second and peak memory at each
# size. Also compares a bake with GNU sort, and an update of a base with a copy of the base.
#
# benches/large.sh [FOLDER]   takes ten minutes, and needs 20 GB in FOLDER (default:
#                             target/large), GNU coreutils, openssl, and /usr/bin/time.
#                             FOLDER is deleted at the end
#
# The variables ROWS="1000000 10000000 100000000", MEMORY=1GiB, and ROUNDS=3 can be set.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")/.."

ROWS=${ROWS:-1000000 10000000 100000000}
MEMORY=${MEMORY:-1GiB}
ROUNDS=${ROUNDS:-3}
folder=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/large}")
baker=$(realpath -m "${CARGO_TARGET_DIR:-target}/release/baker")

cargo build --release --quiet --bin baker
mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT

# numbers END COUNT: prints COUNT random numbers below END, which are the same in all runs.
numbers() {
    # openssl's standard error is discarded, because openssl reports a closed pipe when shuf has read enough.
    shuf -i "0-$(($1 - 1))" -n "$2" \
        --random-source=<(openssl enc -aes-256-ctr -pass pass:1 -nosalt </dev/zero 2>/dev/null)
}

# rows COUNT VALUE_LENGTH: prints a row for each number below COUNT, in random order.
rows() {
    numbers "$1" "$1" |
        awk -v len="$2" '
            BEGIN { while (length(pad) < len) pad = pad "abcdefghijklmnopqrstuvwxyz0123456789" }
            { printf "%s,%s_%s\n", $1, $1, substr(pad, 1, len - 1 - length($1)) }'
}

# seconds COMMAND: prints the run time of a command.
seconds() {
    local start=$EPOCHREALTIME
    "$@" >/dev/null
    awk -v from="$start" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.2f", to - from }'
}

printf '== values of 32 bytes, --memory %s\n' "$MEMORY"
for count in $ROWS; do
    rows "$count" 32 >"$folder/rows.csv"
    /usr/bin/time -o "$folder/time" -f '%e %M' \
        "$baker" --quiet --memory "$MEMORY" -o "$folder/rows.db" "$folder/rows.csv"
    read -r took peak <"$folder/time"
    awk -v rows="$count" -v took="$took" -v peak="$peak" 'BEGIN {
        printf "%11d rows  %7.2f s  %9d rows/s  %6.0f MiB peak resident memory\n", rows, took, rows / took, peak / 1024 }'
    rm "$folder"/rows.*
done

printf '== 10000000 rows, values of 100 bytes: sort and baker alternately\n'
rows 10000000 100 >"$folder/rows.csv"
for ((round = 1; round <= ROUNDS; round++)); do
    sorted=$(seconds env LC_ALL=C sort --parallel=2 -S 4G -t, -k1,1n -o "$folder/sorted" "$folder/rows.csv")
    rm "$folder/sorted"
    baked=$(seconds "$baker" --quiet -o "$folder/rows.db" "$folder/rows.csv")
    awk -v sorted="$sorted" -v baked="$baked" 'BEGIN {
        printf "sort %.2f s, baker %.2f s: ratio %.2f\n", sorted, baked, baked / sorted }'
done

printf '== this table as a base, and 10000 new rows: copy and update alternately\n'
numbers 20000000 10000 | sed 's/$/,changed/' >"$folder/delta.csv"
for ((round = 1; round <= ROUNDS; round++)); do
    copied=$(seconds sh -c 'cp "$1/rows.db" "$1/copy.db" && sync "$1/copy.db"' sh "$folder")
    updated=$(seconds "$baker" --quiet --base "$folder/rows.db" -o "$folder/copy.db" "$folder/delta.csv")
    awk -v copied="$copied" -v updated="$updated" 'BEGIN {
        printf "copy and sync %.2f s, update %.2f s: ratio %.2f\n", copied, updated, updated / copied }'
done
