#!/usr/bin/env bash
# Writes `first address,"last address,country"` for every range of a geoip file of
# Tor, which has lines `first,last,country`, addresses being decimals.
#
#   datasets/ip-ranges.sh /usr/share/tor/geoip | baker - --output ip-ranges.db
set -euo pipefail
export LC_ALL=C

if [[ $# -ne 1 ]]; then
    echo "usage: $0 geoip > ip-ranges.csv" >&2
    exit 2
fi

awk -F ',' '
    /^#/ { next }
    NF != 3 || $1 !~ /^[0-9]+$/ || $2 !~ /^[0-9]+$/ {
        printf "line %d of the input: \"%s\", where first,last,country was expected\n", NR, $0 > "/dev/stderr"
        exit 1
    }
    { printf "%s,\"%s,%s\"\n", $1, $2, $3 }
' < "$1"
