#!/usr/bin/env bash
# Tests and measures a machine on which Zero-KV has not been tested, for example one with another processor, and writes
# a report: facts about the machine, tests whose outcome depends on the order of memory accesses, repeated for some
# time, and the benches of lookups.
#
# benches/machine.sh [SECONDS]   writes target/machine-report.txt. Unit tests and tests of clients are repeated for
#                                SECONDS (default 300), then a test of swaps and a test of changed files run for
#                                SECONDS each; builds and benches take about 15 minutes more. Needs Rust, a C compiler,
#                                Git, lscpu, and free
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-300}
target=${CARGO_TARGET_DIR:-target}
report=$target/machine-report.txt

facts() {
    uname -srvm
    lscpu | grep -E '^(Architecture|CPU\(s\)|Model name|Vendor ID|L[123]|NUMA node\(s\)|Flags)' || true
    printf 'page size: %s\n' "$(getconf PAGESIZE)"
    free -b | sed -n 2p
    rustc -V
    git log -1 --format='commit %H of %cs'
}

# Repeats tests of changed files, of swaps, and of direct mode, in which threads and processes share memory.
stress() {
    local rounds=0
    cargo test --release --locked --no-run --lib --test clients
    SECONDS=0
    while ((rounds == 0 || SECONDS < seconds)); do
        cargo test --release --locked --quiet --lib -- store:: direct::
        cargo test --release --locked --quiet --test clients -- direct::
        rounds=$((rounds + 1))
    done
    printf '%d rounds passed in %d s\n' "$rounds" "$SECONDS"
    ZERO_KV_FAULTS_SECONDS=$seconds cargo test-all --release --locked --test resilience -- swaps:: files:: --nocapture
}

measure() {
    ./cycle.sh
    cargo bench --locked --bench index --bench lookup --bench client --bench direct
}

# run PART: a part that fails does not keep the others from the report.
run() {
    printf '\n== %s\n' "$1"
    # In the condition of `if`, the shell would go on after a command that fails.
    "$1" &
    wait $! || printf '== %s failed with status %d\n' "$1" $?
}

mkdir -p "$target"
{
    run facts
    run stress
    run measure
} 2>&1 | tee "$report"
printf '\nthe report is in %s\n' "$report"
! grep -q '^== .* failed' "$report"
