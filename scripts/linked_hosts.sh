#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs COMMAND where `mpirun` starts one rank on each of HOSTS hosts h1, h2, ...: network and UTS namespaces of this
# machine, joined by a bridge, with a link that carries RATE in either direction (tc's units, as 1gbit; "none": as fast
# as the kernel copies). All of it lies in namespaces of this call, so that nothing is left when it ends, however it
# ends. Ranks reach each other by TCP only. Exit status 77 when namespaces are not permitted.
# Usage: scripts/linked_hosts.sh HOSTS RATE COMMAND...
set -euo pipefail

BURST=96kb  # more than one unsegmented packet; what a link that was idle sends at once
QUEUE=4mb   # what waits for the link, so that packets are late and not lost
SUBNET=10.77.0

usage() {
  echo "usage: scripts/linked_hosts.sh HOSTS RATE COMMAND... (2 to 200 hosts; RATE as 1gbit, or none)" >&2
  exit 2
}

# Open MPI starts its daemons with `AGENT HOST WORDS...`, as it would with ssh.
run_on_host() {
  local host=$1
  shift
  exec nsenter --net="/run/netns/$host" unshare --uts sh -c "hostname $host && $*"
}

shape() {  # shape DEVICE [NSENTER...]: what leaves DEVICE
  local device=$1
  shift
  [ "$rate" = none ] || "$@" tc qdisc add dev "$device" root tbf rate "$rate" burst $BURST limit $QUEUE
}

make_hosts() {
  mount -t tmpfs none /run
  ip link set lo up
  ip link add hub type bridge
  ip address add $SUBNET.254/24 dev hub
  ip link set hub up
  local number host
  for number in $(seq "$hosts"); do
    host=h$number
    ip netns add "$host"
    ip link add "port$number" type veth peer name eth0 netns "$host"
    ip link set "port$number" master hub up
    ip -n "$host" link set lo up
    ip -n "$host" address add "$SUBNET.$number/24" dev eth0
    ip -n "$host" link set eth0 up
    shape "port$number"
    shape eth0 ip netns exec "$host"
  done
}

# The namespaces that hold everything; a user namespace gives the right to make them where root's is missing.
enter_namespaces() {
  local unshare=(unshare --net --mount --uts)
  [ "$(id -u)" -eq 0 ] || unshare+=(--map-root-user)
  if ! refusal=$("${unshare[@]}" ip link set lo up 2>&1); then
    echo "linked_hosts: this machine permits no network namespaces ($refusal): run as root, outside a container" >&2
    exit 77
  fi
  exec "${unshare[@]}" "$0" --inside "$@"
}

# What Open MPI needs to know, for every `mpirun` in COMMAND.
export_hosts() {
  local names
  names=$(seq -f h%.0f -s , "$hosts")
  export OMPI_MCA_orte_default_hostfile=/run/hosts OMPI_MCA_plm_rsh_agent="$self --agent"
  export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self
  export OMPI_MCA_btl_tcp_if_include=$SUBNET.0/24 OMPI_MCA_oob_tcp_if_include=$SUBNET.0/24
  export OMPI_MCA_orte_tmpdir_base=/run OMPI_MCA_hwloc_base_binding_policy=none
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  tr , '\n' <<<"$names" | sed 's/$/ slots=1/' >/run/hosts
}

self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
if [ "${1:-}" = --agent ]; then
  shift
  run_on_host "$@"
fi
inside=
[ "${1:-}" != --inside ] || { inside=1; shift; }
[ $# -ge 3 ] && [[ $1 =~ ^[0-9]+$ ]] && [ "$1" -ge 2 ] && [ "$1" -le 200 ] || usage
[ -n "$inside" ] || enter_namespaces "$@"
hosts=$1 rate=$2
shift 2
make_hosts
export_hosts
exec "$@"
