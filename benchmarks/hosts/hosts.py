"""Several hosts on one machine, for benchmarks: network, UTS and mount namespaces with a cable (veth) to each other, or to a
switch where there are more than two; shaped if asked. Libraries take them for different machines: their names, addresses
and loopbacks differ. The kernel removes all of it with the processes that hold it, which end with this one."""
import pathlib
import shlex
import subprocess
import tempfile

import contest
import peers

MTU = 1500
MPIS = ("impi", "mpich", "openmpi")  # peers under whose launchers our programs run with the engine `mpi`
ENGINE = {"LOCKSTEP_ENGINE": "mpi", "LOCKSTEP_IFACE": "cable", "LOCKSTEP_LOG": "error"}
RATES = {"100m": 10**8, "1g": 10**9, "10g": 10**10, "veth": None}  # bits a second; None: as fast as the kernel copies
HOLDER = """
hostname {name}
mount --make-rprivate /
mount --bind {names} /etc/hosts
mkdir -p {names}.cgroup
mount --rbind /sys/fs/cgroup {names}.cgroup
mount -t sysfs none /sys  # with this host's interfaces
mount --rbind {names}.cgroup /sys/fs/cgroup
echo held
exec cat
"""


class NotPossible(Exception):
    pass


def _run(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise NotPossible(f"{shlex.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Hosts:
    """With a remote shell, `agent`, that takes the place of ssh: it is called with a host and a command."""

    def __init__(self, count, link, bursts=True):
        """`bursts`: what a shaped link carries in a millisecond passes at once after a rest; else about nothing does."""
        self.count = count
        self.link = link
        self._bursts = bursts
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-bench-hosts-")
        self.names = [f"host{number}" for number in range(count)]
        self._holders = []
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self):
        folder = pathlib.Path(self._folder.name)
        lines = [f"{self.address(number)} {name}" for number, name in enumerate(self.names)]
        (folder / "names").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        for name in self.names + (["switch"] if self.count > 2 else []):
            script = HOLDER.format(name=name, names=folder / "names")
            holder = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "/bin/sh", "-ec", script],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self._holders.append(holder)
            contest.kept.add(holder.pid)
            if holder.stdout.readline().strip() != "held":
                raise NotPossible(f"no namespaces: {holder.stderr.read().strip()}")
        self._connect()
        self.agent = folder / "agent"
        cases = "\n".join(f"  {name}|{self.address(number)}|*@{name}) pid={self._holders[number].pid} ;;"
                          for number, name in enumerate(self.names))
        # As ssh: options before the host and after it, then words that its shell puts together.
        self.agent.write_text(f"""#!/bin/sh
host=
while [ $# -gt 0 ]; do
  case $1 in
    -[lpoiFe]) shift 2 ;;
    -*) shift ;;
    *) [ -z "$host" ] || break; host=$1; shift ;;
  esac
done
case $host in
{cases}
  *) echo "agent: no host $host" >&2; exit 255 ;;
esac
exec nsenter -t $pid -n -u -m -- /bin/sh -c "$*"
""")
        self.agent.chmod(0o755)

    def _connect(self):
        if self.count == 2:
            self._ip(0, f"link add cable type veth peer name cable netns {self._holders[1].pid}")
        else:
            self._ip(self.count, "link add switch type bridge")
            self._ip(self.count, "link set switch up")
            for host in range(self.count):
                self._ip(self.count, f"link add port{host} type veth peer name cable netns {self._holders[host].pid}")
                self._ip(self.count, f"link set port{host} master switch")
                self._ip(self.count, f"link set port{host} up")
        rate = RATES[self.link]
        for host in range(self.count):
            self._ip(host, f"address add {self.address(host)}/24 dev cable")
            self._ip(host, f"link set cable mtu {MTU} up")
            if not self._bursts:  # a segment passes as a whole
                self._ip(host, "link set cable gso_max_size 16384")
            self._ip(host, "link set lo up")
            if rate:  # by htb: tbf cuts up segments that are longer than its burst, and their packets overtake each other
                burst = f"burst {self.burst_bytes()} cburst {self.burst_bytes()}"
                self.inside(host, "tc qdisc add dev cable root handle 1: htb default 1".split())
                self.inside(host, f"tc class add dev cable parent 1: classid 1:1 htb rate {rate}bit {burst}".split())
        # The kernel tells that cables carry a while after both ends are up; until then libfabric does not take them.
        for host in range(self.count):
            self.inside(host, ["sh", "-c", "until ip link show cable | grep -q 'state UP'; do sleep 0.01; done"])

    def burst_bytes(self):
        rate = RATES[self.link]
        return (rate // 8 // 1000 if self._bursts else MTU + 100) if rate else None

    def address(self, host):
        return f"10.179.0.{host + 1}"

    def entering(self, host):
        """Words before a command that is to run there."""
        return ["nsenter", "-t", str(self._holders[host].pid), "-n", "-u", "-m", "--"]

    def network(self, host):
        return f"/proc/{self._holders[host].pid}/ns/net"

    def inside(self, host, words):
        return _run([*self.entering(host), *words])

    def _ip(self, host, words):
        self.inside(host, ["ip", *words.split()])

    def lockstep(self, build, each, buffers, environment=None, name="lockstep", program=("lockstep_collectives",)):
        """A program of Lockstep's under our own launcher, which is on the first host, by the agent: `each` ranks on each host."""
        words = [str(contest.built(build, program[0])), *program[1:]]
        return self.under_our_launcher(build, each, words, environment, name, buffers)

    def under_our_launcher(self, build, each, words, environment=None, name="lockstep", buffers=()):
        list_of_hosts = ",".join(f"{self.address(host)}:{each}" for host in range(self.count))
        launcher = [*self.entering(0), str(build / "bin/lockstep"), "run", "-np", str(self.count * each), "-H", list_of_hosts,
                    "--no-pin", "--no-prefix"]
        return contest.Contestant(name, launcher, {"LOCKSTEP_SSH": str(self.agent), **(environment or {})}, words, buffers)

    def under_mpi(self, name, home, each, words, called=None, buffers=(), may_fail=False):
        """With the engine `mpi`, as the peer `name` in `home` is started."""
        launcher, environment = peers.load(name).launcher_on(home, self, each)
        return contest.Contestant(called or name, [*self.entering(0), *launcher], {**environment, **ENGINE}, words, buffers, may_fail)

    def addresses(self):
        return ",".join(self.address(host) for host in range(self.count))

    def sent_bytes(self):
        """Of each host, by its interface."""
        return [self._sent(host) for host in range(self.count)]

    def _sent(self, host):
        # /sys shows the namespace that mounted it; /proc/net is the reader's.
        for line in self.inside(host, ["cat", "/proc/self/net/dev"]).splitlines():
            if line.strip().startswith("cable:"):
                return int(line.split(":")[1].split()[8])
        raise NotPossible("there is no cable")

    def describe(self):
        return {"hosts": self.count, "link": self.link, "rate_bits": RATES[self.link], "burst_bytes": self.burst_bytes(), "mtu": MTU,
                "congestion_control": pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()}

    def close(self):
        for holder in self._holders:
            contest.kept.discard(holder.pid)
            holder.kill()
            holder.wait()
        self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
