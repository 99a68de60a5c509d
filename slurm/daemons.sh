# Starting and stopping the daemons of the throw-away cluster; sourced by up.sh and down.sh.
# shellcheck shell=bash disable=SC2154  # `state` is set by whoever sources this

export SLURM_CONF=$state/etc/slurm.conf
# The caller's may be one that the database's user cannot write to.
unset TMPDIR
db_port=${RLBHPC_CLUSTER_DB_PORT:-16033}

# Whether the process of a pid file lives, and is still the program that wrote it.
alive() {
    local file=$1 name=$2 pid
    pid=$(cat "$file" 2>/dev/null) || return 1
    [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$name" ]
}

# Wait until a command succeeds, a minute at most.
wait_for() {
    local what=$1
    shift
    for _ in $(seq 60); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.25
    done
    echo "up.sh: $what did not come up; look into $state/log" >&2
    return 1
}

# The cluster has a network namespace of its own with nothing but a loopback interface: slurmdbd
# listens on every address there is, and jobs shall find no network, as on real nodes. The second address is there because
# getaddrinfo takes a host that has 127.0.0.1 alone for one without IPv4.
start_network() {
    alive "$state/pid/network.pid" sleep && return
    setsid unshare --net --uts sh -c '
        hostname localhost && ip link set lo up && ip address add 192.0.2.1/32 dev lo
        echo $$ >"$1" && exec sleep infinity
    ' sh "$state/pid/network.pid" </dev/null >"$state/log/network.log" 2>&1 &
    wait_for "the network namespace" test -s "$state/pid/network.pid"
}

# Run a command inside the cluster's network.
inside() {
    local pid
    pid=$(cat "$state/pid/network.pid")
    nsenter --net="/proc/$pid/ns/net" --uts="/proc/$pid/ns/uts" "$@"
}

start_munge() {
    alive "$state/munge/run/munged.pid" munged && return
    runuser -u munge -- munged --key-file="$state/munge/munge.key" \
        --socket="$state/munge/run/munge.socket" --pid-file="$state/munge/run/munged.pid" \
        --log-file="$state/munge/munged.log" --seed-file="$state/munge/munged.seed"
    wait_for munge munge --socket="$state/munge/run/munge.socket" -n
}

start_database() {
    alive "$state/db/run/mariadb.pid" mariadbd && return
    local client=(mariadb --no-defaults --socket="$state/db/run/mariadb.sock" -u root)
    if [ ! -d "$state/db/data/mysql" ]; then
        mariadb-install-db --no-defaults --user=mysql --datadir="$state/db/data" \
            --skip-test-db >"$state/log/install-db.log" 2>&1
    fi
    inside setsid mariadbd --no-defaults --user=mysql --datadir="$state/db/data" \
        --bind-address=127.0.0.1 --port="$db_port" --socket="$state/db/run/mariadb.sock" \
        --pid-file="$state/db/run/mariadb.pid" --innodb-buffer-pool-size=64M \
        --innodb-flush-log-at-trx-commit=0 </dev/null >"$state/log/mariadb.log" 2>&1 &
    wait_for MariaDB "${client[@]}" -e 'SELECT 1'
    "${client[@]}" <<'END'
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@127.0.0.1 IDENTIFIED BY 'throwaway';
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED BY 'throwaway';
GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
END
}

start_slurmdbd() {
    alive "$state/pid/slurmdbd.pid" slurmdbd && return
    inside slurmdbd </dev/null >"$state/log/slurmdbd.out" 2>&1
}

start_slurmctld() {
    alive "$state/pid/slurmctld.pid" slurmctld && return
    inside slurmctld -f "$state/etc/slurm.conf" </dev/null >"$state/log/slurmctld.out" 2>&1
}

start_slurmd() {
    alive "$state/pid/slurmd.$1.pid" slurmd && return
    inside slurmd -f "$state/etc/slurm.conf" -N "$1" </dev/null \
        >"$state/log/slurmd.$1.out" 2>&1
}

# End the process of a pid file: politely, then after ten seconds for good.
stop() {
    local file=$1 name=$2 pid
    alive "$file" "$name" || { rm -f "$file"; return 0; }
    pid=$(cat "$file")
    kill -TERM "$pid" 2>/dev/null || true
    for _ in $(seq 100); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    rm -f "$file"
}
