"""What soaks need of the machine: two hosts, and a /dev/shm that nobody else uses. All of it goes with this process."""
import ctypes
import os
import subprocess
import threading

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


class NotPossible(Exception):
    pass


def check(result, what):
    if result != 0:
        raise NotPossible(f"{what}: {os.strerror(ctypes.get_errno())}")


def take_shared_memory_folder():
    """Mounts an empty /dev/shm for this process and its children; False where that takes more rights."""
    try:
        check(libc.unshare(CLONE_NEWNS), "no mount namespace")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
        return True
    except (NotPossible, OSError, subprocess.CalledProcessError):
        return False


class TwoHosts:
    """Network namespaces without names, with a cable (veth) between them; the kernel removes them with this process."""

    addresses = ("10.178.0.1", "10.178.0.2")

    def __init__(self):
        self.networks = [self._make_network() for _ in range(2)]
        other_end = f"/proc/{os.getpid()}/fd/{self.networks[1]}"
        self._run(0, f"ip link add cable type veth peer name cable netns {other_end}")
        for host, address in enumerate(self.addresses):
            self._run(host, f"ip address add {address}/24 dev cable")
            self._run(host, "ip link set cable up")
            self._run(host, "ip link set lo up")

    def set_cable(self, state):
        self._run(1, f"ip link set cable {state}")

    def entering(self, host):
        """For subprocess.Popen's preexec_fn."""
        network = self.networks[host]
        return lambda: check(libc.setns(network, CLONE_NEWNET), "entering a network namespace")

    @staticmethod
    def _make_network():
        made = []

        def make():
            try:
                check(libc.unshare(CLONE_NEWNET), "no network namespace")
                made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
            except (NotPossible, OSError) as error:
                made.append(error)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if isinstance(made[0], Exception):
            raise NotPossible(made[0])
        return made[0]

    def _run(self, host, command):
        try:
            done = subprocess.run(command.split(), preexec_fn=self.entering(host), capture_output=True, text=True)
        except OSError as error:
            raise NotPossible(error) from error
        if done.returncode != 0:
            raise NotPossible(f"{command}: {done.stderr.strip()}")
