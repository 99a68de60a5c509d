#!/usr/bin/env bash
# Take the throw-away cluster down: every process that up.sh started, by its pid, and its folder.
set -euo pipefail

state=${RLBHPC_CLUSTER_STATE:-/tmp/rlbhpc-cluster}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=daemons.sh
. "$here/daemons.sh"

[ -d "$state/etc" ] || { echo "No cluster in $state."; exit 0; }

if alive "$state/pid/slurmctld.pid" slurmctld; then
    inside timeout 10 scancel --user=rlbhpc-dev,rlbhpc-dev2 2>/dev/null || true
    for _ in $(seq 80); do
        [ -z "$(inside timeout 5 squeue -h -o %i 2>/dev/null)" ] && break
        sleep 0.25
    done
fi
for file in "$state"/pid/slurmd.*.pid; do [ -e "$file" ] && stop "$file" slurmd; done
# What still runs of a job belongs to a step daemon of a node of ours.
for step in $(pgrep -x slurmstepd || true); do
    tr '\0' '\n' <"/proc/$step/environ" 2>/dev/null | grep -qx "SLURM_CONF=$SLURM_CONF" \
        && kill -KILL "$step" 2>/dev/null || true
done
stop "$state/pid/slurmctld.pid" slurmctld
stop "$state/pid/slurmdbd.pid" slurmdbd
stop "$state/db/run/mariadb.pid" mariadbd
stop "$state/munge/run/munged.pid" munged
stop "$state/pid/network.pid" sleep
for user in rlbhpc-dev2 rlbhpc-dev; do
    pkill -KILL -U "$user" 2>/dev/null || true
    # Scratch of killed jobs: the next cluster counts its jobs from 1 again.
    find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'rlbhpc-[0-9]*' -user "$user" -exec rm -rf {} + \
        2>/dev/null || true
    id "$user" >/dev/null 2>&1 && userdel --force "$user" 2>/dev/null || true
done
# A file that a container runtime has mounted can be written, and not replaced.
others=$(grep -v " # $state\$" /etc/hosts) && echo "$others" >/etc/hosts
rm -rf "$state"
echo "The cluster is down."
