#!/usr/bin/env bash
# Installs the third-party programs that tests, lint and benches drive. As root it uses the distribution's packages;
# otherwise it names what is missing, and the tests that need it say so again.
set -euo pipefail
. "$(dirname "$0")/retried.sh"

declare -A package=(
    [clang]=clang [clang-tidy]=clang-tidy [ffmpeg]=ffmpeg [lintian]=lintian [node]=nodejs [npm]=npm [runc]=runc [valgrind]=valgrind
)
missing=()
for program in "${!package[@]}"; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]}: install them with your package manager; tests that need them will fail or skip" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
retried apt-get update -qq
retried apt-get install -y -qq -o DPkg::Lock::Timeout=600 --no-install-recommends "${missing[@]}" >/dev/null
