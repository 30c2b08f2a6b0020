#!/usr/bin/env bash
# Unpacks Debian's Slurm and munge with what they need into a folder, for test/containers: slurm.sh FOLDER. Installs nothing.
# Fails where they cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
unpack_begin "$1" "$0" "$here/debian.sh"
debian_unpack bookworm main "$folder/debian" slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 libhwloc15 \
    libpmix2 libfreeipmi17 libipmimonitoring6 librrd8 libjwt0 libjansson4 libhttp-parser2.9 liblua5.4-0 libevent-core-2.1-7 \
    libevent-pthreads-2.1-7 libb64-0d libyaml-0-2 librdkafka1 libmariadb3
unpack_end
