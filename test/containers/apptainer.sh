# Makes Apptainer ready: $1 is where Debian's packages are unpacked. Its C library is newer than the machine's and serves all
# programs. From a mount of their own Apptainer's programs sometimes take /lib for the place in which they are installed, and
# look for their folders there.
set -e
mkdir -p /opt/usr /opt/usr.work /var/lib/apptainer/mnt/session
mount -t overlay -o "lowerdir=$1/usr:/usr,upperdir=/opt/usr,workdir=/opt/usr.work" overlay /usr
ln -s /var /etc /usr/lib/
cp -r "$1/etc/apptainer" /etc/
ldconfig
# Whether root of a container may have all of root's rights depends on the machine.
sed -i 's/^root default capabilities.*/root default capabilities = no/' /etc/apptainer/apptainer.conf
mkdir -p /opt/image/var/tmp
apptainer --silent build --sandbox /opt/bench /opt/image
