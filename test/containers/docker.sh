# Starts Docker and gives it the image of image.sh: $1 is where its version is unpacked and $2 where that with runc is, $3 is the
# cgroup of the containers and $4 the daemon's configuration. The daemon makes no network.
set -e
place=/opt/docker tools=/opt/tools
mkdir -p "$tools" "$place"
echo 1 >/proc/sys/net/ipv4/ip_forward # of the machine's own network; Docker warns without it
echo "$4" >"$place/daemon.json"
export LD_LIBRARY_PATH="$2/usr/lib/x86_64-linux-gnu:$2/lib/x86_64-linux-gnu" PATH="$1/usr/sbin:$1/usr/bin:$2/usr/sbin:$PATH"
setsid dockerd --config-file "$place/daemon.json" --data-root "$place/data" --exec-root "$place/exec" --pidfile "$place/pid" \
    --host "unix://$place/socket" --storage-driver vfs --bridge none --iptables=false --ip6tables=false --ip-forward=false \
    --ip-masq=false --cgroup-parent "$3" >"$place/log" 2>&1 &
cat >"$tools/docker" <<END
#!/bin/sh
DOCKER_HOST=unix://$place/socket exec "$1/usr/bin/docker" "\$@"
END
chmod 755 "$tools/docker"
until "$tools/docker" version >/dev/null 2>&1; do
    kill -0 $! || { cat "$place/log"; exit 1; }
    sleep 0.1
done
"$tools/docker" import /opt/bench.tar bench >/dev/null
