"""Jobs of which one rank is killed or stopped while they start.

A rank that is hurt before it came is not known to anybody but the launcher: the others wait for it until their deadline.
"""
import collections
import os
import re
import signal
import time

from hurting import CALL, Soak
from job import Missed

ERROR = re.compile(r"^probe rank=(?P<rank>\d+) code=(?P<code>\w+) peer=(?P<peer>\w+) text=(?P<text>.*)$", re.MULTILINE)
STAGES = (("before it came", re.compile("waited in vain for|never arrived")),
          ("while all joined", re.compile("could not join|before all ranks|meeting place|did not connect|"
                                          "not go on|share(d)? memory|does not answer")),
          ("in its first calls", CALL))
STAYS = 2.0  # rank 0, which serves the meeting place, for those that came and may not have heard of the end
GRACE = 5.0  # that the launcher gives ranks which do not end by themselves, and more


class Starting(Soak):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.stages = collections.Counter()  # how many survivors said that it happened when
        self.duration = None

    def start(self, job, launched, timeout):
        variables = {"SOAK_SEED": "1", "LOCKSTEP_INIT_TIMEOUT": f"{int(timeout * 1000)}ms",
                     "LOCKSTEP_TIMEOUT": f"{int(timeout * 1000)}ms"}
        if not launched:
            return self.start_by_hand(job, None, variables)
        words = [self.options.lockstep, "run", "-np", str(self.options.ranks), "--no-prefix", "--"]
        return job.start(words + self.victim, variables)

    def hurt_while_starting(self, job, dice, how, launched):
        """Returns the rank that was hurt, and when."""
        if self.duration is None:
            self.duration = self.measure()
        rank = dice.randrange(self.options.ranks)
        began = time.monotonic()
        self.start(job, launched, self.options.timeout)
        time.sleep(max(0, began + dice.uniform(0, self.duration[launched]) - time.monotonic()))
        pid = job.processes[rank].pid if not launched else job.pid_of_rank(rank)
        now = time.monotonic()
        os.kill(pid, how)
        return rank, now

    def measure(self):
        """By whether there is a launcher: until all ranks have begun, and a little more."""
        found = {}
        for launched in (False, True):
            with self.job() as job:
                began = time.monotonic()
                self.start(job, launched, 30)
                job.await_all_loop()
                found[launched] = 1.2 * (time.monotonic() - began)
        return found

    def require_blame(self, job, hurt, codes, unless_ended=False):
        """Of all others, unless the launcher says that it ended them."""
        errors = {int(found["rank"]): found.groupdict() for found in ERROR.finditer(job.said_on_stderr())}
        errors.update(job.reports)
        ended = re.search(r"^  ranks? ([\d, -]+): ended by the launcher", job.said_on_stderr(), re.MULTILINE)
        if unless_ended and ended:
            for first, _, last in (part.partition("-") for part in ended[1].split(",")):
                for rank in range(int(first), int(last or first) + 1):
                    errors.pop(rank, None)
                    self.stages["before anybody knew it"] += 1
                    codes[rank] = None
        for rank in self.others(hurt) - codes.keys():
            error = errors.get(rank)
            if error is None:
                raise Missed(f"rank {rank} says nothing about rank {hurt}")
            if (error["code"], error["peer"]) not in (("peer_lost", str(hurt)), ("timeout", str(hurt))):
                raise Missed(f"rank {rank} does not blame rank {hurt}: {error}")
            if not re.search(rf"\branks? {hurt}\b", error["text"]):
                raise Missed(f"rank {rank} does not name rank {hurt}: {error}")
            stage = next((name for name, text in STAGES if text.search(error["text"])), error["text"])
            self.stages[stage] += 1

    def kill_by_hand(self, job, dice):
        rank, when = self.hurt_while_starting(job, dice, signal.SIGKILL, False)
        codes = job.finish()
        took = time.monotonic() - when
        if any(code != (-signal.SIGKILL if r == rank else 1) for r, code in enumerate(codes)):
            raise Missed(f"exit codes {codes}, rank {rank} was killed")
        self.require_blame(job, rank, {})
        return self.require_in_time(job, [took], self.options.timeout + STAYS + self.options.limit)

    def kill_under_the_launcher(self, job, dice):
        rank, when = self.hurt_while_starting(job, dice, signal.SIGKILL, True)
        codes = job.finish()
        took = time.monotonic() - when
        if codes != [128 + signal.SIGKILL]:
            raise Missed(f"the launcher returned {codes[0]}")
        if not re.search(rf"lockstep run: rank {rank} \(pid \d+\) was killed by signal 9", job.said_on_stderr()):
            raise Missed("the launcher does not name the rank that was killed")
        self.require_blame(job, rank, {}, unless_ended=True)
        return self.require_in_time(job, [took], GRACE)

    def stop_by_hand(self, job, dice):
        rank, when = self.hurt_while_starting(job, dice, signal.SIGSTOP, False)
        for other in self.others(rank):
            if job.processes[other].wait(timeout=30) != 1:
                raise Missed(f"rank {other} ended with {job.processes[other].returncode}")
        took = time.monotonic() - when
        os.kill(job.processes[rank].pid, signal.SIGCONT)
        codes = job.finish()
        if codes[rank] != 1:
            raise Missed(f"rank {rank}, which was stopped, ended with {codes[rank]}")
        self.require_blame(job, rank, {})
        return self.require_in_time(job, [took], self.options.timeout + STAYS + self.options.limit)

    def stop_under_the_launcher(self, job, dice):
        rank, when = self.hurt_while_starting(job, dice, signal.SIGSTOP, True)
        codes = job.finish()
        took = time.monotonic() - when
        if codes != [1]:
            raise Missed(f"the launcher returned {codes[0]}")
        self.require_blame(job, rank, {rank: None})
        return self.require_in_time(job, [took], self.options.timeout + GRACE)
