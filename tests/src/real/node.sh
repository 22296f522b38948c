# Runs as the first process of a node's own process and mount namespace, so that everything it starts or mounts ends with it
# and the machine's own /run, /var/lib and kernel settings stay as they are. Arguments: the node's folder, the kubelet program,
# then the kubelet's flags.
set -eu
folder=$1
kubelet=$2
shift 2

mount --make-rshared /
# containerd, CNI and the kubelet's device plugins have paths here that no flag changes.
for path in /run /var/lib /var/log; do
  mount -t tmpfs tmpfs "$path"
done
mkdir -p /var/lib/kubelet /run/netns

# The kubelet and the CNI plugin set these for the whole machine: they get a copy of each to write to.
mkdir -p "$folder/sysctl"
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
  kernel/keys/root_maxkeys kernel/keys/root_maxbytes net/ipv4/ip_forward; do
  if [ -e "/proc/sys/$setting" ]; then
    copy="$folder/sysctl/$(echo "$setting" | tr / -)"
    cat "/proc/sys/$setting" >"$copy"
    mount --bind "$copy" "/proc/sys/$setting"
  fi
done

containerd --config "$folder/containerd.toml" >"$folder/containerd.log" 2>&1 &
until [ -e "$folder/images-are-there" ]; do
  kill -0 $! 2>/dev/null || { echo "containerd ended:"; tail -n 20 "$folder/containerd.log"; exit 1; }
  sleep 0.1
done
# Not `exec`: the first process of a namespace must reap orphans, which a shell does and the kubelet does not.
"$kubelet" "$@"
