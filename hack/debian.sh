# Sourced by scripts that unpack packages of Debian's which this machine does not have. Installs nothing, and leaves the
# machine's own sources of packages as they are.

# debian_unpack RELEASE COMPONENT FOLDER PACKAGE... unpacks packages of a release into FOLDER, which it makes anew. The
# caller checks its status: set -e does not hold in a condition.
debian_unpack() {
    local release=$1 component=$2 folder=$3 keys=/usr/share/keyrings/debian-archive-keyring.gpg work address options package
    shift 3
    [ -e "$keys" ] || { echo "$keys is missing: this machine does not know Debian's keys" >&2; return 1; }
    # Debian's address as this machine knows it.
    address=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m1 '/debian/*$' || echo http://deb.debian.org/debian)
    work=$(mktemp -d)
    mkdir -p "$work"/{lists/partial,cache/archives/partial}
    echo "deb [signed-by=$keys] $address $release $component" >"$work/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o Dir::State::status=/dev/null
        -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
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
