#!/bin/sh
# lacks.sh LIST PAGE: every attribute that the list has stands in the page, and no other.
set -eu
list=$(sed -n 's/^REMOTE_LACKS(\([A-Z0-9_]*\),.*/\1/p' "$1" | sort)
page=$(sed -n '/^## What is told otherwise/,/^Pointers/p' "$2" | grep '^|' | grep -o '`[A-Z0-9_]*`' | tr -d '`' | sort)
[ -n "$list" ] && [ "$list" = "$page" ] && exit 0
echo "$2 and $1 differ:"
a=$(mktemp) && b=$(mktemp)
echo "$list" >"$a"
echo "$page" >"$b"
diff "$a" "$b" || true
rm -f "$a" "$b"
exit 1
