#!/usr/bin/env bash
# Formats the C files that people write, or with --check names those that are not formatted. The version is pinned
# (from PyPI, kept under .cache/), because distributions' versions read C as C++ and differ from each other.
set -euo pipefail
cd "$(dirname "$0")/.."

version=21.1.8
home=$PWD/.cache/clang-format-$version
if [ ! -x "$home/bin/clang-format" ]; then
    python3 -m venv "$home"
    "$home/bin/pip" install --quiet --disable-pip-version-check "clang-format==$version"
fi
mapfile -t sources < <(git ls-files '*.c' '*.h' | grep -v -e /generated/ -e abi/testdata/)
case ${1:-} in
--check) exec "$home/bin/clang-format" --dry-run --Werror "${sources[@]}" ;;
*) exec "$home/bin/clang-format" -i "${sources[@]}" ;;
esac
