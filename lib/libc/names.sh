#!/bin/sh
# names.sh NEWEST FILE...: prints, for each name that the C library's files export, the newest of its versions that is no
# newer than GLIBC_NEWEST: name, version, size, and whether it is data ("data") or code ("code").
set -eu
newest=$1
shift
for file; do
    LC_ALL=C readelf -W --dyn-syms "$file"
done | awk -v newest="$newest" '
# number makes 2.17 and 2.2.5 comparable.
function number(version,   part) { split(version, part, "."); return part[1] * 1000000 + part[2] * 1000 + part[3] }
$5 ~ /^(GLOBAL|WEAK)$/ && $7 != "UND" && $4 ~ /^(FUNC|IFUNC|OBJECT|NOTYPE)$/ && $8 ~ /@GLIBC_[0-9.]+$/ {
    split($8, at, /@+GLIBC_/)
    if (number(at[2]) <= number(newest) && number(at[2]) > number(version[at[1]])) {
        version[at[1]] = at[2]
        size[at[1]] = $3
        kind[at[1]] = $4 == "OBJECT" ? "data" : "code"
    }
}
END { for (name in version) print name, version[name], size[name], kind[name] }' | LC_ALL=C sort
