# Makes an image as /opt/bench.tar. It has this machine's C library and a few programs, and no file of a GPU driver but the one
# that CUDA's images have for hosts with older drivers.
set -e
image=/opt/image
for program in sh cat ls sleep gpubench; do
    file=$(command -v "$program")
    mkdir -p "$image/usr/bin"
    cp -L "$file" "$image/usr/bin/"
    ldd "$file" | grep -o '/[^ ]*' | while read -r library; do
        target=$image/usr/$(echo "$library" | sed 's|^/usr/||; s|^/||')
        mkdir -p "$(dirname "$target")"
        cp -nL "$library" "$target"
    done
done
for part in libdl.so.2 libpthread.so.0; do
    cp -nL "/lib/x86_64-linux-gnu/$part" "$image/usr/lib/x86_64-linux-gnu/"
done
mkdir -p "$image/etc" "$image/tmp" "$image/proc" "$image/dev" "$image/run"
for folder in bin lib lib64; do
    ln -s "usr/$folder" "$image/$folder"
done
compat=usr/local/cuda-12.4/compat
mkdir -p "$image/$compat" "$image/etc/alternatives"
echo 'no library' >"$image/$compat/libcuda.so.1"
ln -s /usr/local/cuda-12.4 "$image/etc/alternatives/cuda"
ln -s /etc/alternatives/cuda "$image/usr/local/cuda"
tar -C "$image" -cf /opt/bench.tar .
