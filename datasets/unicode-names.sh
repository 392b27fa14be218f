#!/usr/bin/env bash
# Writes `code point in decimal,name` for every line of a UnicodeData.txt.
#
#   datasets/unicode-names.sh /usr/share/unicode/UnicodeData.txt > datasets/unicode-names.csv
set -euo pipefail
export LC_ALL=C

if [[ $# -ne 1 ]]; then
    echo "usage: $0 UnicodeData.txt > unicode-names.csv" >&2
    exit 2
fi

# No strtonum, which only GNU awk has.
awk -F ';' '
    function refuse(fault) {
        printf "line %d of the input: %s\n", NR, fault > "/dev/stderr"
        exit 1
    }
    function decimal(hex,    i, number) {
        for (i = 1; i <= length(hex); i++) {
            number = number * 16 + index("0123456789ABCDEF", substr(hex, i, 1)) - 1
        }
        return number
    }
    # RFC 4180: quoted only where it must be.
    function field(text) {
        if (text !~ /[,"\r]/) return text
        gsub(/"/, "\"\"", text)
        return "\"" text "\""
    }
    NF != 15 { refuse(NF " fields, where 15 were expected") }
    $1 !~ /^[0-9A-F]+$/ { refuse("code point " $1 ", where upper-case hexadecimal was expected") }
    { printf "%d,%s\n", decimal($1), field($2) }
' < "$1"
