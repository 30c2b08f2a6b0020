#!/usr/bin/env bash
# Unpacks what test/vm boots into FOLDER/tree: vm-kit.sh FOLDER. QEMU 10 and Linux 6.12 with its modules and headers come
# from Debian's backports, the newest of their series, what they need and the tools of the guest from Debian 12. Installs
# nothing. FOLDER/digests tells what was unpacked; hack/vm-kit.txt has what was last tested, and --record writes it.
#
# What was downloaded stays in FOLDER/packages until the whole is there, so a second run goes on where the first was
# interrupted. apt checks every file against Debian's signed list, and so does this script before it unpacks.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
record=
[ "$1" != --record ] || { record=yes; shift; }
folder=$(mkdir -p "$1" && cd "$1" && pwd)

[ "$(uname -m)" = x86_64 ] || { echo "the kit is for x86-64" >&2; exit 1; }
exec 9>"$folder/lock"
flock 9
wanted=$(cat "$0" "$here/debian.sh" | sha256sum)
if [ "$(cat "$folder/.complete" 2>/dev/null)" = "$wanted" ]; then
    [ -z "$record" ] || cp "$folder/digests" "$here/vm-kit.txt"
    exit 0
fi
rm -f "$folder/.complete"
mkdir -p "$folder/packages"

backports=bookworm-backports
debian_apt "$folder/apt" main bookworm $backports
apt-get "${options[@]}" update

# newest PACKAGE PATTERN prints what the newest PACKAGE depends on that fits PATTERN: the kernel's name has its version.
newest() {
    apt-cache "${options[@]}" show --no-all-versions "$1/$backports" | sed -nE "s/^Depends: .*($2).*/\\1/p" | grep . ||
        { echo "$1 of $backports depends on nothing like $2" >&2; return 1; }
}
image=$(newest linux-image-amd64 'linux-image-6\.12\.[^ ,]+-amd64')
kernel=${image#linux-image-}
emulator=(qemu-system-x86 qemu-system-data seabios)
headers=("linux-headers-$kernel" "linux-headers-${kernel%-amd64}-common" "linux-kbuild-${kernel%-amd64}")
# What these need and a machine with a C compiler has is left out: the C and C++ libraries.
libraries=(libaio1 libbpf1 libcap2 libcapstone4 libelf1 libfdt1 libffi8 libfuse3-3 libglib2.0-0 libgmp10 libgnutls30 libhogweed6
    libibverbs1 libidn2-0 libjpeg62-turbo libblkid1 libmnl0 libmount1 libndctl6 libdaxctl1 libkmod2 libnettle8 libnl-3-200 libnl-route-3-200 libnuma1 libp11-kit0
    libpcre2-8-0 libpixman-1-0 libpmem1 libpng16-16 librdmacm1 libsasl2-2 libseccomp2 libselinux1 libslirp0 libssl3 libtasn1-6
    libudev1 libunistring2 liburing2 libuuid1 libvdeplug2 libxtables12 libzstd1 liblzma5 zlib1g libbsd0 libmd0 libdb5.3 libtirpc3 libgssapi-krb5-2
    libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1)
tools=(iproute2 ibverbs-utils ibverbs-providers)
packages=("${emulator[@]/%//$backports}" "$image/$backports" "${headers[@]/%//$backports}" "${libraries[@]/%//bookworm}"
    "${tools[@]/%//bookworm}")

# apt lists no package that is in the working directory already.
cd "$folder/apt"
apt-get "${options[@]}" --print-uris download "${packages[@]}" |
    sed -nE "s/^'[^']+' ([^ ]+) [0-9]+ SHA256:([0-9a-f]{64})$/\2  \1/p" | sort -k2 >"$folder/digests.new"
[ "$(wc -l <"$folder/digests.new")" -eq ${#packages[@]} ] || { echo "Debian's list lacks some of: ${packages[*]}" >&2; exit 1; }
grep -qE ' qemu-system-x86_1%3a10\.' "$folder/digests.new" || { echo "$backports has no QEMU 10 any more" >&2; exit 1; }
cd "$folder/packages"
# A file that an interrupted run left short is fetched again.
sha256sum --check --quiet "$folder/digests.new" 2>/dev/null | sed -nE 's/^(.+): FAILED.*$/\1/p' | xargs -r rm -f || true
apt-get "${options[@]}" download "${packages[@]}"
sha256sum --check --quiet "$folder/digests.new"

rm -rf "$folder/tree" "$folder/tree.new"
while read -r _ package; do
    dpkg -x "$package" "$folder/tree.new"
done <"$folder/digests.new"
mv "$folder/tree.new" "$folder/tree"
mv "$folder/digests.new" "$folder/digests"
diff -q "$folder/digests" "$here/vm-kit.txt" >/dev/null 2>&1 || echo "the kit is newer than what hack/vm-kit.txt has as tested" >&2
[ -z "$record" ] || cp "$folder/digests" "$here/vm-kit.txt"
rm -rf "$folder/packages" "$folder/apt"
echo "$wanted" >"$folder/.complete"
