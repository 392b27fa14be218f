#!/usr/bin/env bash
# Installs missing packages, builds, measures, and prints the report: see README.md.
# Arguments are passed to the program: run.sh --help lists them.
set -euo pipefail
cd "$(dirname "$0")"

# need PACKAGE FILE: lists the package as missing unless the file exists.
missing=()
need() {
    [[ -e $2 ]] || missing+=("$1")
}
multiarch=/usr/lib/$(uname -m)-linux-gnu
need librocksdb-dev "$multiarch/librocksdb.so"
need libcdb-dev /usr/include/cdb.h
need redis-server /usr/bin/redis-server
need redis-tools /usr/bin/redis-benchmark
need memcached /usr/bin/memcached

if ((${#missing[@]})); then
    sudo=()
    [[ $(id -u) -eq 0 ]] || sudo=(sudo)
    echo "installing ${missing[*]}" >&2
    # Failures are ignored, because the report lists the engines whose packages cannot be installed.
    "${sudo[@]}" apt-get update -qq >&2 || true
    for package in "${missing[@]}"; do
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2 ||
            echo "run.sh: $package cannot be installed" >&2
        # Debian starts installed services, but the run starts its own servers.
        if [[ -d /run/systemd/system && $package =~ ^(redis-server|memcached)$ ]]; then
            "${sudo[@]}" systemctl disable --now "$package" >&2 || true
        fi
    done
fi

features=()
[[ -e $multiarch/librocksdb.so ]] && features+=(rocksdb)
[[ -e /usr/include/cdb.h ]] && features+=(cdb)

cargo build --release --locked --package zero-kv --bin kv_store --bin benchmarker >&2
cargo build --release --locked --features "${features[*]}" >&2
exec ../../target/release/peers "$@"
