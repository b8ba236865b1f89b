"""Jobs of which one rank is killed or stopped while it loops over collectives or training steps."""
import os
import random
import re
import signal
import statistics
import tempfile
import time

import seen
from hosts import NotPossible, TwoHosts
from job import Job, Missed

CALL = re.compile(r"^(layer \"[^\"]+\": )?(barrier|send|recv|(all_reduce|reduce|reduce_scatter|broadcast|scatter|gather|all_gather|"
                  r"all_to_all)(_v|_grouped)?) (#\d+ |\")|^making group \"")
NOT_SUBMITTED = re.compile(r"but not by ranks? (\d+(?:, \d+)*), for ")


class Soak:
    def __init__(self, options, folder):
        self.options = options
        self.secret = os.path.join(folder, "secret")
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            file.write(os.urandom(32))
        self.hosts = None
        self.why_no_hosts = None
        try:
            self.hosts = TwoHosts()
        except NotPossible as error:
            self.why_no_hosts = str(error)
        self.jobs = 0
        self.victim = []  # program and arguments; see aim()
        self.files = os.path.join(folder, "files")  # the victim's
        os.mkdir(self.files)
        self.half_written = set()  # by the job before
        self.all_half_written = 0
        self.all_misses = 0

    def aim(self, victim):
        self.victim = [word.replace("{folder}", self.files) for word in victim]

    def job(self):
        self.jobs += 1
        return Job(self.options.ranks, f"soak-{os.getpid()}-{self.jobs}")

    def start_by_hand(self, job, hosts, variables):
        port = job.take_port()
        for rank in range(self.options.ranks):
            host = int(rank >= self.options.ranks / 2)
            place = {"RANK": str(rank), "WORLD_SIZE": str(self.options.ranks), "MASTER_PORT": str(port),
                     "MASTER_ADDR": hosts.addresses[0] if hosts else "127.0.0.1"}
            if hosts:
                place["LOCKSTEP_SECRET_FILE"] = self.secret
            job.start(self.victim, {**place, **variables}, hosts and hosts.entering(host))

    def hurt(self, job, dice, how):
        """Returns the rank that was hurt, and when."""
        job.await_all_loop()
        left = self.half_written & set(os.listdir(self.files))
        if left:
            raise Missed(f"the start did not remove what the job before left half-written: {sorted(left)}")
        rank = dice.randrange(self.options.ranks)
        time.sleep(dice.uniform(0, self.options.delay))
        now = time.monotonic_ns()
        os.kill(job.pids[rank], how)
        return rank, now

    def latencies(self, job, hurt, when, code):
        """In seconds, of the survivors; Missed unless all of them blame the one that was hurt."""
        found = []
        for rank in range(self.options.ranks):
            if rank == hurt:
                continue
            report = job.reports[rank]
            if not self.is_blamed(hurt, code, report) and not self.is_blamed_through_another(job, hurt, code, report):
                raise Missed(f"rank {rank} does not blame rank {hurt} with {code}: {self.all_said(job)}")
            if not CALL.match(report["text"]):
                raise Missed(f"rank {rank} does not name its operation: {report}")
            found.append((int(report["failed_ns"]) - max(when, int(report["began_ns"]))) / 1e9)
        return found

    @staticmethod
    def all_said(job):
        def took(report):
            return (int(report["failed_ns"]) - int(report["began_ns"])) / 1e9
        return "; ".join(f"rank {one}, after {took(report):.3f} s: {report['text']}" for one, report in sorted(job.reports.items()))

    @staticmethod
    def is_blamed(hurt, code, report):
        return (report["code"], int(report["peer"])) == (code, hurt) and re.search(rf"\brank {hurt}\b", report["text"])

    def is_blamed_through_another(self, job, hurt, code, report):
        """A rank that makes a group, opens its first connection to another host, or is still in the tensors before this
        one, does not say for whom it waits: who waits for it does not see behind it."""
        late = re.search(r"ranks? ([\d, ]+) did not (arrive within|connect to)", report["text"]) or NOT_SUBMITTED.search(
            report["text"])
        if code != "timeout" or report["code"] != code or not late:
            return False
        ranks = [int(rank) for rank in late[1].split(", ")]
        texts = [report["text"], *(job.reports[rank]["text"] for rank in ranks if rank in job.reports)]
        is_busy = late.re is NOT_SUBMITTED or any(
            text.startswith("making group") or f"rank {hurt} did not answer: " in text for text in texts)
        return is_busy and all(
            rank == hurt or self.is_blamed(hurt, code, job.reports[rank]) for rank in ranks)

    def require_in_time(self, job, latencies, limit):
        if max(latencies) > limit:
            raise Missed(f"one of the others knew only after {max(latencies):.3f} s: {self.all_said(job)}")
        return latencies

    def others(self, hurt):
        return set(range(self.options.ranks)) - {hurt}

    def kill_under_the_launcher(self, job, dice, *flags):
        words = [self.options.lockstep, "run", "-np", str(self.options.ranks), "--no-prefix", *flags, "--"]
        job.start(words + self.victim, {"SOAK_SEED": str(dice.randrange(1 << 31))})
        rank, when = self.hurt(job, dice, signal.SIGKILL)
        job.await_reports(self.others(rank))
        code, = job.finish()
        if code != 128 + signal.SIGKILL:
            raise Missed(f"the launcher returned {code}")
        if f"lockstep run: rank {rank} (pid {job.pids[rank]}) was killed by signal 9" not in job.said_on_stderr():
            raise Missed("the launcher does not name the rank that was killed")
        return self.require_in_time(job, self.latencies(job, rank, when, "peer_lost"), self.options.limit)

    def kill_while_seen(self, job, dice):
        with tempfile.TemporaryDirectory() as folder:
            latencies = self.kill_under_the_launcher(job, dice, "--profile", f"{folder}/profile", "--profile-all",
                                                     "--report", f"{folder}/report")
            seen.require_whole(self.options.lockstep, folder, self.options.ranks)
        return latencies

    def kill_on_two_hosts(self, job, dice):
        self.start_by_hand(job, self.hosts, {"SOAK_SEED": str(dice.randrange(1 << 31))})
        rank, when = self.hurt(job, dice, signal.SIGKILL)
        job.await_reports(self.others(rank))
        codes = job.finish()
        if any(code != (-signal.SIGKILL if r == rank else 1) for r, code in enumerate(codes)):
            raise Missed(f"exit codes {codes}, rank {rank} was killed")
        return self.require_in_time(job, self.latencies(job, rank, when, "peer_lost"), self.options.limit)

    def stop(self, job, dice):
        hosts = self.hosts if self.jobs % 2 == 0 else None
        patience = f"{int(self.options.timeout * 1000)}ms"  # groups are made within LOCKSTEP_INIT_TIMEOUT
        self.start_by_hand(job, hosts, {"SOAK_SEED": str(dice.randrange(1 << 31)), "SOAK_STAYS": "1",
                                        "LOCKSTEP_TIMEOUT": patience, "LOCKSTEP_INIT_TIMEOUT": patience})
        rank, when = self.hurt(job, dice, signal.SIGSTOP)
        job.await_reports(self.others(rank))
        latencies = self.latencies(job, rank, when, "timeout")
        os.kill(job.pids[rank], signal.SIGCONT)
        job.await_reports({rank})
        job.tell_all_to_look(set(range(self.options.ranks)))
        harmed = {r: said for r, said in job.looked.items() if said != "unharmed"}
        if harmed:
            raise Missed(f"memory was changed after the failure: {harmed}")
        codes = job.finish()
        if any(code != 1 for code in codes):
            raise Missed(f"exit codes {codes}")
        return self.require_in_time(job, latencies, self.options.timeout + self.options.limit)

    def silence(self, job, dice):
        """The network between two hosts carries nothing any more, and tells nobody so."""
        patience = f"{int(self.options.timeout * 1000)}ms"
        self.start_by_hand(job, self.hosts, {"SOAK_SEED": str(dice.randrange(1 << 31)), "LOCKSTEP_TIMEOUT": patience,
                                             "LOCKSTEP_INIT_TIMEOUT": patience})
        job.await_all_loop()
        time.sleep(dice.uniform(0, self.options.delay))
        when = time.monotonic_ns()
        self.hosts.set_cable("down")
        try:
            job.await_reports(set(range(self.options.ranks)))
            codes = job.finish()
        finally:
            self.hosts.set_cable("up")
        half = self.options.ranks / 2

        def is_elsewhere(rank, report):
            return report["code"] == "timeout" and int(report["peer"]) >= 0 and (int(report["peer"]) >= half) != (rank >= half)

        for rank, report in sorted(job.reports.items()):
            blamed = int(report["peer"])
            theirs = job.reports.get(blamed, {"text": "", "code": ""})
            # A rank that makes a group, or opens its first connection to the other host, does not say for whom it waits: who waits for it
            # does not see behind it.
            is_busy = report["code"] == theirs["code"] == "timeout" and (
                theirs["text"].startswith("making group") or " did not answer: " in theirs["text"])
            # One that has said so has ended since, as it does here after a failure in any group.
            has_gone = report["code"] == "peer_lost" and "look at what" in report["text"] and is_elsewhere(blamed, theirs)
            if not (is_elsewhere(rank, report) or is_busy or has_gone):
                raise Missed(f"rank {rank} does not name one on the other host: {self.all_said(job)}")
            if not CALL.match(report["text"]):
                raise Missed(f"rank {rank} does not name its operation: {report}")
        if any(code != 1 for code in codes):
            raise Missed(f"exit codes {codes}")
        return self.require_in_time(
            job, [(int(report["failed_ns"]) - max(when, int(report["began_ns"]))) / 1e9 for report in job.reports.values()],
            self.options.timeout + 1 + self.options.limit)  # Linux sees a second later that there is no carrier, and takes bytes until then

    def throw(self, job, dice):
        """An exception in the middle of a backward pass; nothing but the victim's own end tells the others."""
        return self.told(job, dice, signal.SIGUSR1, "peer_lost")

    def nan(self, job, dice):
        """A gradient that is no number: all ranks stop, the one that has it, too."""
        return self.told(job, dice, signal.SIGUSR2, "invalid_argument")

    def told(self, job, dice, how, code):
        hosts = self.hosts if self.jobs % 2 == 0 else None
        self.start_by_hand(job, hosts, {"SOAK_SEED": str(dice.randrange(1 << 31))})
        rank, when = self.hurt(job, dice, how)
        reporting = self.others(rank) if code == "peer_lost" else set(range(self.options.ranks))
        job.await_reports(reporting)
        for one in sorted(reporting):
            if not self.is_blamed(rank, code, job.reports[one]):
                raise Missed(f"rank {one} does not blame rank {rank} with {code}: {job.reports[one]['text']}")
        codes = job.finish()
        if any(code != 1 for code in codes):
            raise Missed(f"exit codes {codes}")
        reports = [job.reports[one] for one in reporting]
        return self.require_in_time(
            job, [(int(report["failed_ns"]) - max(when, int(report["began_ns"]))) / 1e9 for report in reports],
            self.options.limit)

    def repeat(self, name, times, one):
        """The row of a table."""
        latencies, misses = [], 0
        for run in range(times):
            with self.job() as job:
                try:
                    latencies += one(job, random.Random(f"{self.options.seed} {name} {run}"))
                    job.require_nothing_left()
                    self.half_written = {name for name in os.listdir(self.files) if ".tmp-" in name}
                    self.all_half_written += len(self.half_written)
                except Missed as missed:
                    misses += 1
                    print(f"{name}, run {run}, seed {self.options.seed}: {missed}\n{job.said_on_stderr()}", flush=True)
        self.all_misses += misses
        median, worst = (statistics.median(latencies), max(latencies)) if latencies else (0, 0)
        return f"{name:<32}{times:>6}{misses:>8}{median * 1e3:>12.1f} ms{worst * 1e3:>12.1f} ms"
