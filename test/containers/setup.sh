# Makes podman and an image for the examples: $1 is where Debian's packages are unpacked, $2 the cgroup of the containers.
set -e
tools=/opt/tools place=/opt/podman
mkdir -p "$tools" "$place/image" /etc/containers
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/etc/containers/policy.json
echo 'unqualified-search-registries = []' >/etc/containers/registries.conf
cat >"$place/containers.conf" <<END
[containers]
netns = "none"
apparmor_profile = ""
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
conmon_path = ["$1/usr/bin/conmon"]
[engine.runtimes]
runc = ["$1/usr/sbin/runc"]
END
cat >"$tools/podman" <<END
#!/bin/sh
case \$1 in run | create)
    verb=\$1
    shift
    set -- "\$verb" --cgroup-parent "$2" "\$@"
    ;;
esac
LD_LIBRARY_PATH=$1/usr/lib/x86_64-linux-gnu CONTAINERS_CONF=$place/containers.conf exec "$1/usr/bin/podman" \
    --root $place/store --runroot $place/run --tmpdir $place/tmp --storage-driver vfs "\$@"
END
chmod 755 "$tools/podman"

# The image has this machine's C library and a few programs, and no file of a GPU driver.
image=$place/image
for program in sh cat sleep gpubench; do
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
tar -C "$image" -cf "$place/bench.tar" .
podman=$tools/podman
"$podman" import --quiet "$place/bench.tar" localhost/bench >/dev/null
