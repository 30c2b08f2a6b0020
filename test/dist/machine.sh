#!/bin/sh
# Makes a machine in the namespaces that it runs in, and becomes its init: the files of this machine below a layer that is thrown
# away, /proc/sys and /sys read-only, six users, and systemd with the units named in the arguments alone. The first argument is
# the folder of the release, which the machine has as /release; the second a folder to work in.
set -e
release=$1 work=$2
shift 2

mount -t tmpfs -o mode=755 tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" overlay "$work/root"
cd "$work/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/shm dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for device in null zero full random urandom tty; do
	touch "dev/$device"
	mount --bind "/dev/$device" "dev/$device"
done
for dir in run tmp var/tmp home; do
	mount -t tmpfs -o mode=755 tmpfs "$dir"
done
chmod 1777 tmp var/tmp
mkdir release && mount --bind "$release" release

id=2000
for user in ada ben cleo dan eva finn; do
	id=$((id + 1))
	echo "$user:x:$id:$id::/home/$user:/bin/sh" >>etc/passwd
	echo "$user:x:$id:" >>etc/group
	install -d -o "$id" -g "$id" -m 700 "home/$user"
done
rm -rf etc/divvy var/lib/divvy
rm -f usr/sbin/policy-rc.d # which would keep packages from starting services
# No unit of this machine's starts but those that are named.
rm -rf etc/systemd/system lib/systemd/system-generators/* lib/systemd/system/*.wants usr/lib/systemd/system-generators/*
mkdir -p etc/systemd/system/sockets.target.wants
ln -s /lib/systemd/system/multi-user.target etc/systemd/system/default.target
for unit; do
	ln -s "/lib/systemd/system/$unit" "etc/systemd/system/sockets.target.wants/$unit"
done
echo machine >etc/hostname

mkdir .old
pivot_root . .old
umount -l /.old
rmdir /.old
exec setpriv --bounding-set -sys_time,-sys_module,-sys_boot --inh-caps -sys_time,-sys_module,-sys_boot \
	env -i container=divvy PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --log-target=null --show-status=0
