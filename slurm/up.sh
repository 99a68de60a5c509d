#!/usr/bin/env bash
# Bring up a throw-away Slurm on this host: munge, MariaDB, slurmdbd, slurmctld, three nodes, four
# preempting partitions and a short one, two ordinary users with a folder that they share, one node
# with an old Python, a job_submit.lua. Everything listens on the loopback address only, and all state is in one folder. Run it
# again and it mends what is down.
set -euo pipefail

state=${RLBHPC_CLUSTER_STATE:-/tmp/rlbhpc-cluster}
users=(rlbhpc-dev rlbhpc-dev2)
nodes=3
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=daemons.sh
. "$here/daemons.sh"

[ "$(id -u)" = 0 ] || { echo "up.sh: the throw-away cluster needs root" >&2; exit 64; }

install_packages() {
    local missing=()
    # Python of the system: one that the ordinary user can run, for the parents of the jobs.
    for package in slurm-wlm slurmdbd munge mariadb-server python3 iproute2 procps; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

make_users() {
    local user home
    for user in "${users[@]}"; do
        # The first one keeps the plain name of the folder.
        home=$state/home${user#"${users[0]}"}
        id "$user" >/dev/null 2>&1 || useradd --no-create-home --home-dir "$home" \
            --shell /bin/bash "$user"
        install -d -m 755 -o "$user" -g "$user" "$home"
    done
    usermod --append --groups "${users[0]}" "${users[1]}"
    install -d -m 2775 -o "${users[0]}" -g "${users[0]}" "$state/project"
}

# Fill in a template of etc/: only @STATE@, @NODES@ and @DB_PORT@ stand for something.
render() {
    sed -e "s|@STATE@|$state|g" -e "s|@NODES@|$nodes|g" -e "s|@DB_PORT@|$db_port|g" \
        "$here/etc/$1" >"$state/etc/$1"
}

make_state() {
    install -d -m 755 "$state" "$state/etc" "$state/log" "$state/ctld" "$state/pid"
    install -d -m 755 -o munge -g munge "$state/munge" "$state/munge/run"
    install -d -m 755 -o mysql -g mysql "$state/db" "$state/db/run"
    for n in $(seq $nodes); do install -d -m 755 "$state/slurmd.n$n"; done
    if [ ! -f "$state/munge/munge.key" ]; then
        dd if=/dev/urandom of="$state/munge/munge.key" bs=1024 count=1 status=none
        chown munge:munge "$state/munge/munge.key"
        chmod 400 "$state/munge/munge.key"
    fi
    local file
    for file in slurm.conf gres.conf slurmdbd.conf cgroup.conf task-prolog.sh job_submit.lua; do
        render "$file"
    done
    echo "# Nothing yet." >"$state/etc/extra.conf"
    rm -f "$state/etc/say" "$state/etc/refuse"
    chmod 755 "$state/etc/task-prolog.sh"
    install -D -m 755 "$here/etc/old-python3" "$state/old/python3"
    chmod 600 "$state/etc/slurmdbd.conf"
    cat >"$state/enter" <<END
#!/bin/bash
# Run a command on the cluster as one of its ordinary users (run this as root).
export SLURM_CONF=$state/etc/slurm.conf
pid=\$(cat $state/pid/network.pid)
exec nsenter --net=/proc/\$pid/ns/net --uts=/proc/\$pid/ns/uts runuser -u \${RLBHPC_CLUSTER_USER:-${users[0]}} -- "\$@"
END
    chmod 755 "$state/enter"
    # As distributions ship it: Apptainer mounts images through it as an ordinary user.
    [ -c /dev/fuse ] && chmod 666 /dev/fuse || true
}

# The ranks of a training on several nodes meet at the first one, by its name.
name_nodes() {
    for n in $(seq $nodes); do
        grep -q "^127.0.0.1 n$n # $state\$" /etc/hosts || echo "127.0.0.1 n$n # $state" >>/etc/hosts
    done
}

make_accounts() {
    local yes=(inside timeout 20 sacctmgr -i -Q)
    wait_for slurmdbd inside timeout 5 sacctmgr -n list cluster
    "${yes[@]}" add cluster rlbhpcdev >/dev/null 2>&1 || true
    "${yes[@]}" add account dev Description=dev Organization=dev >/dev/null 2>&1 || true
    for user in "${users[@]}"; do
        "${yes[@]}" add user "$user" Account=dev DefaultAccount=dev >/dev/null 2>&1 || true
    done
}

install_packages
make_users
make_state
name_nodes

start_network
start_munge
start_database
start_slurmdbd
make_accounts
start_slurmctld
for n in $(seq $nodes); do start_slurmd "n$n"; done

wait_for slurmctld inside timeout 5 scontrol ping
# A node that was lost before comes back only when it is told to.
for n in $(seq $nodes); do
    inside scontrol update nodename="n$n" state=resume >/dev/null 2>&1 || true
done
all_idle() { [ "$(inside sinfo -h -N -p low -t idle,alloc,mix -o %N | sort -u | wc -l)" = "$nodes" ]; }
for _ in $(seq 60); do all_idle && break; sleep 0.5; done
all_idle || { echo "up.sh: the nodes did not come up; look into $state/log" >&2; exit 1; }
inside sinfo
echo "The cluster is up. To use it: $state/enter COMMAND; to end it: make cluster-down"
