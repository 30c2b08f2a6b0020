#!/usr/bin/env bash
# Finds names that give a word of the glossary (docs/design/README.md) a second meaning, or a thing a second name.
# hack/words.txt lists them. With --test it checks that every row finds its own example.
set -euo pipefail
cd "$(dirname "$0")/.."

rows() { grep -vE '^(#|$)' hack/words.txt; }

if [ "${1:-}" = --test ]; then
    status=0
    while IFS=$'\t' read -r pattern _ _ example; do
        if ! grep -qP -- "$pattern" <<<"$example"; then
            echo "hack/words.txt: $pattern does not find its example: $example"
            status=1
        fi
    done < <(rows)
    exit $status
fi

status=0
while IFS=$'\t' read -r pattern paths instead _; do
    read -ra specs <<<"$paths"
    if found=$(git grep -nIP -e "$pattern" -- "${specs[@]}" ':!hack/words.txt'); then
        printf '%s\n    instead: %s\n' "$found" "$instead"
        status=1
    fi
    if found=$(git ls-files -- "${specs[@]}" | grep -P -- "$pattern"); then
        printf '%s: a name of a file\n    instead: %s\n' "$found" "$instead"
        status=1
    fi
done < <(rows)
exit $status
