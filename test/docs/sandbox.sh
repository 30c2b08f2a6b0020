#!/bin/sh
# Makes the machine on which a page's commands run, in namespaces of its own, and becomes its shell: user ada, who has no rights
# of root's, or root; a simulated GPU that stands where a real one would; no network; homes, /run, /var/lib and /dev/shm that are thrown away.
# Arguments: the folder of the source, the tree that make build made, the simulated machine, the user. Commands come on input.
set -e
source=$1 tree=$2 machine=$3 user=$4
case $5 in
"")
	exec unshare --user --map-root-user --mount --pid --net --ipc --uts --fork --kill-child --mount-proc --propagation private "$0" "$@" machine
	;;
machine)
	hostname server
	for dir in /run /dev/shm /home /opt /var/lib; do
		mount -t tmpfs -o mode=777 tmpfs "$dir"
	done
	mount -t tmpfs -o mode=755 tmpfs /var/lib
	mkdir -p /run/user/1000 /home/ada/bin /opt/divvy /opt/gpus /opt/etc
	mount --bind "$tree" /opt/divvy
	cp "$source"/test/docs/programs/* /home/ada/bin/
	for name in testdata docs deploy examples; do
		ln -s "$source/$name" "/home/ada/$name"
	done
	mv /home/ada/bin/*.py /home/ada/bin/server /home/ada/
	mkdir /home/ada/programs
	mv /home/ada/bin/test_* /home/ada/programs/
	printf 'root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/bash\n' >/opt/etc/passwd
	printf 'root:x:0:\nada:x:1000:\n' >/opt/etc/group
	mount --bind /opt/etc/passwd /etc/passwd
	mount --bind /opt/etc/group /etc/group
	# The simulated driver stands where ldconfig finds it, as a driver does.
	DIVVY_RUNDIR=/opt/gpus /opt/divvy/bin/divvy simgpu start "$machine" --name gpus >&2
	chmod 755 /opt/gpus /opt/gpus/simgpu
	echo /opt/gpus/simgpu/gpus >/opt/etc/ld.so.conf
	echo 'include /etc/ld.so.conf' >>/opt/etc/ld.so.conf
	ldconfig -f /opt/etc/ld.so.conf -C /opt/etc/ld.so.cache 2>/dev/null
	mount --bind /opt/etc/ld.so.cache /etc/ld.so.cache
	[ "$user" = root ] || exec unshare --user --map-user=1000 --map-group=1000 "$0" "$source" "$tree" "$machine" "$user" user
	exec "$0" "$source" "$tree" "$machine" "$user" user
	;;
user)
	cd /home/ada
	exec env -i HOME=/home/ada USER="$user" LANG=C.UTF-8 TERM=dumb XDG_RUNTIME_DIR=/run/user/1000 DIVVY_SIMGPU=/opt/gpus/simgpu/gpus \
		PATH=/home/ada/bin:/opt/divvy/bin:/opt/gpus/simgpu/gpus:/opt/divvy/libexec/divvy:/usr/sbin:/usr/bin:/sbin:/bin bash --noprofile --norc
	;;
esac
