#!/usr/bin/env bash
# Names the tests that failed, from what go test and make said: each with the first lines of its reason, 60 lines in all. The fewer
# tests failed, the more lines each has: a reason may stand below what the test had told before.
#
#   hack/failures.sh <LOG
#
# go test says the reason below the name of the test, and with -v above it, among what other tests say meanwhile.
set -euo pipefail

log=$(cat)
count=$(grep -c '^ *--- FAIL: ' <<<"$log" || true)
each=$((count > 4 ? 8 : 40 / (count + 1)))

awk -v most=60 -v each=$each '
function show(line) {
    if (++lines <= most) print substr(line, 1, 400)
}
# The last lines of a test are the ones that end it.
function keep(name, line,   i) {
    if (kept[name] == each) {
        for (i = 1; i < each; i++) said[name, i] = said[name, i + 1]
        kept[name]--
    }
    said[name, ++kept[name]] = line
}
/^=== (RUN|NAME|CONT|PAUSE) / { current = $3; below = 0; next }
/^ *--- FAIL: / {
    show($0)
    for (i = 1; i <= kept[$3]; i++) show(said[$3, i])
    below = kept[$3] ? 0 : each
    delete kept[$3]
    next
}
/^ *--- (PASS|SKIP): / { delete kept[$3]; below = 0; next }
/^(PASS|FAIL|ok)$/ || /^(ok|\?) / { current = ""; below = 0; next }
/^(panic: |fatal error: |FAIL\t[^\t]*( \[|\t.*\[)|make(\[[0-9]+\])?: \*\*\* )/ { show($0); below = 0; next }
current != "" && /^ +[^ ]/ { keep(current, $0); next }
below && /^ +[^ ]/ { show($0); below--; next }
{ below = 0 }
END { if (lines > most) printf "… and %d lines more\n", lines - most }
' <<<"$log"
