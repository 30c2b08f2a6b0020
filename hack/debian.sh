# Sourced by scripts that unpack packages of Debian's which this machine does not have. Installs nothing, and leaves the
# machine's own sources of packages as they are.

# debian_apt WORK COMPONENT RELEASE... makes `options`, with which apt-get and apt-cache know only that component of the
# releases, and keep what they need in WORK.
debian_apt() {
    local work=$1 component=$2 keys=/usr/share/keyrings/debian-archive-keyring.gpg address release
    shift 2
    [ -e "$keys" ] || { echo "$keys is missing: this machine does not know Debian's keys" >&2; return 1; }
    # Debian's address as this machine knows it.
    address=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/*$' || echo http://deb.debian.org/debian)
    mkdir -p "$work"/{lists/partial,cache/archives/partial}
    for release in "$@"; do
        echo "deb [signed-by=$keys] $address $release $component"
    done >"$work/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o Dir::State::status=/dev/null
        -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
}

# debian_unpack RELEASE COMPONENT FOLDER PACKAGE... unpacks packages of a release into FOLDER, which it makes anew. The
# caller checks its status: set -e does not hold in a condition.
debian_unpack() {
    local release=$1 component=$2 folder=$3 work options package
    shift 3
    work=$(mktemp -d)
    debian_apt "$work" "$component" "$release" || { rm -rf "$work"; return 1; }
    rm -rf "$folder"
    if apt-get "${options[@]}" update && (cd "$work" && apt-get "${options[@]}" download "${@/%//$release}"); then
        for package in "$work"/*.deb; do
            dpkg -x "$package" "$folder" || { rm -rf "$work"; return 1; }
        done
        rm -rf "$work"
        return 0
    fi
    rm -rf "$work"
    return 1
}

# unpack_begin FOLDER SOURCE... makes FOLDER anew, for scripts that unpack programs for x86-64, and names it in $folder. The
# script ends here where an earlier run of the same sources came to unpack_end.
unpack_begin() {
    folder=$(mkdir -p "$1" && cd "$1" && pwd)
    shift
    [ "$(uname -m)" = x86_64 ] || { echo "the programs are for x86-64" >&2; exit 1; }
    unpacked_from=$(cat "$@" | sha256sum)
    [ "$(cat "$folder/.complete" 2>/dev/null)" != "$unpacked_from" ] || exit 0
    rm -rf "$folder"
    mkdir -p "$folder"
}

# unpack_end says that all is in $folder.
unpack_end() { echo "$unpacked_from" >"$folder/.complete"; }
