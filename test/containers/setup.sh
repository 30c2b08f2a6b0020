# Makes podman, Open MPI and Jupyter for the examples, after image.sh: $1, $3 and $4 are the folders in which they are unpacked,
# $2 is the cgroup of the containers.
set -e
tools=/opt/tools place=/opt/podman
mkdir -p "$tools" "$place" /etc/containers

# Open MPI and Debian's Python look for their files below /usr and /etc.
mkdir -p /opt/usr /opt/usr.work
mount -t overlay -o "lowerdir=$3/debian/usr:$4/debian/usr:/usr,upperdir=/opt/usr,workdir=/opt/usr.work" overlay /usr
cp -r "$3/debian/etc/openmpi" /etc/
ip link set lo up
echo 'oob_tcp_if_include = lo' >>/etc/openmpi/openmpi-mca-params.conf # the machine has no other interface
cat >"$tools/mpirun" <<'END'
#!/bin/sh
exec /usr/bin/mpirun --allow-run-as-root --oversubscribe "$@"
END
cat >"$tools/jupyter" <<END
#!/bin/sh
command=\$1
shift
HOME=/opt/jupyter PYTHONPATH=$4/modules PYTHONDONTWRITEBYTECODE=1 exec python3 -m "jupyter_client.\${command}app" "\$@"
END
chmod 755 "$tools/mpirun" "$tools/jupyter"

# The podman that conmon starts when a container ends has no variables: without libraries it says nothing of the end.
for folder in usr/lib lib; do
    echo "$1/debian/$folder/x86_64-linux-gnu"
done >/etc/ld.so.conf.d/podman.conf
ldconfig
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
conmon_path = ["$1/debian/usr/bin/conmon"]
[engine.runtimes]
runc = ["$1/debian/usr/sbin/runc"]
END
cat >"$tools/podman" <<END
#!/bin/sh
case \$1 in run | create)
    verb=\$1
    shift
    set -- "\$verb" --cgroup-parent "$2" "\$@"
    ;;
esac
CONTAINERS_CONF=$place/containers.conf exec "$1/debian/usr/bin/podman" \
    --root $place/store --runroot $place/run --tmpdir $place/tmp --storage-driver vfs "\$@"
END
chmod 755 "$tools/podman"
"$tools/podman" import --quiet /opt/bench.tar localhost/bench >/dev/null
