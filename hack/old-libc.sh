#!/usr/bin/env bash
# Unpacks the C library of Debian 11 (GLIBC_2.31) below a folder, for tests: old-libc.sh FOLDER. Installs nothing, and leaves
# the machine's own sources of packages as they are.
set -euo pipefail
release=bullseye
folder=$(mkdir -p "$1" && cd "$1" && pwd)
[ ! -e "$folder/.release" ] || [ "$(cat "$folder/.release")" != "$release" ] || exit 0
rm -rf "${folder:?}/root" "$folder/.release"

# Debian's address as this machine knows it, and its keys.
address=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/*$' || true)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -n "$address" ] || address=http://deb.debian.org/debian
[ -e "$keys" ] || { echo "$keys is missing: this machine does not know Debian's keys" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
echo "deb [signed-by=$keys] $address $release main" >"$work/sources.list"
options=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
apt-get "${options[@]}" update
(cd "$work" && apt-get "${options[@]}" download "libc6/$release")
dpkg -x "$work"/libc6_*.deb "$folder/root"
echo "$release" >"$folder/.release"
