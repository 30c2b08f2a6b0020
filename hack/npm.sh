# Sourced by scripts that unpack packages of npm's registry. Installs nothing, and runs no script of a package.

# npm_unpack FOLDER NAME VERSION SUM unpacks a package into FOLDER, which it makes anew. SUM is its SHA-512 as the registry
# writes it, such as sha512-abc=.
npm_unpack() {
    local folder=$1 name=$2 version=$3 sum=$4 work archive found
    command -v npm >/dev/null || { echo "npm is missing, with which $name is had" >&2; return 1; }
    work=$(mktemp -d)
    archive=$(cd "$work" && npm pack --silent --ignore-scripts "$name@$version") || { rm -rf "$work"; return 1; }
    found=sha512-$(openssl dgst -sha512 -binary "$work/$archive" | base64 -w0)
    if [ "$found" != "$sum" ]; then
        echo "$name $version has the sum $found and not $sum" >&2
        rm -rf "$work"
        return 1
    fi
    rm -rf "$folder"
    mkdir -p "$folder"
    tar -xzf "$work/$archive" -C "$folder" --strip-components=1
    rm -rf "$work"
}
