#!/usr/bin/env bash
# Unpacks Debian's Open MPI with what it needs into a folder, for test/containers: mpi.sh FOLDER. Installs nothing.
# Fails where it cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
unpack_begin "$1" "$0" "$here/debian.sh"
debian_unpack bookworm main "$folder/debian" openmpi-bin openmpi-common libopenmpi3 libpmix2 libhwloc15 libhwloc-plugins \
    libevent-core-2.1-7 libevent-pthreads-2.1-7 libucx0 libfabric1 libibverbs1 librdmacm1 libnl-3-200 libnl-route-3-200 libnuma1 \
    libpsm2-2 libpsm-infinipath1 libmunge2 libxnvctrl0 ocl-icd-libopencl1 libpciaccess0 libatomic1 libxext6 libx11-6 libxcb1 \
    libxau6 libxdmcp6 libbsd0 libmd0 ibverbs-providers
cp -a "$folder/debian/lib/." "$folder/debian/usr/lib" # as on a machine whose /lib is a link
# Its commands are alternatives, which dpkg chooses when it installs them.
for command in mpirun mpiexec; do
    ln -sf orterun "$folder/debian/usr/bin/$command"
done
unpack_end
