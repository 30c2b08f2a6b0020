# Starts Slurm with one node that has two GPUs and shards of them: $1 is where Debian's packages are unpacked. The machine has
# mounts and a network of its own. Device files stand for those of GPUs, which a simulated machine does not have.
set -e
place=/opt/slurm host=$(hostname -s)
mkdir -p "$place/usr" "$place/work" "$place/state" "$place/spool" /run/munge
mount -t overlay -o "lowerdir=$1/usr:/usr,upperdir=$place/usr,workdir=$place/work" overlay /usr
for program in slurmctld slurmd slurmstepd; do
    ln -sf "$program-wlm" "/usr/sbin/$program"
done
ip link set lo up
ip address add 10.77.0.1/32 dev lo # the loopback interface's own addresses do not count as a network to getaddrinfo
export SLURM_CONF="$place/slurm.conf"
head -c 1024 /dev/urandom >"$place/munge.key"
chmod 400 "$place/munge.key"
munged --key-file="$place/munge.key" --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/pid --log-file="$place/munge.log" \
    --seed-file=/run/munge/seed --force >/dev/null 2>&1
cat >"$place/slurm.conf" <<END
ClusterName=lab
SlurmctldHost=$host(10.77.0.1)
SlurmUser=root
PluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu,shard
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=10.77.0.1 CPUs=4 Gres=gpu:2,shard:8
PartitionName=all Nodes=$host Default=YES
END
cat >"$place/gres.conf" <<END
Name=gpu File=/dev/null
Name=gpu File=/dev/zero
Name=shard Count=8
END
slurmctld -c >/dev/null 2>&1
slurmd -c -N "$host" >/dev/null 2>&1
