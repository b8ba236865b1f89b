#!/usr/bin/env python3
"""benchmarks/readme_tables.py writes README's figures from results, and notices where the two differ. usage:
readme_tables_test.py REPOSITORY"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

script = pathlib.Path(sys.argv.pop(1)) / "benchmarks" / "readme_tables.py"
MACHINE = {"processor": "Some Processor", "cores": 2, "system": "Linux 6", "process_vm_readv": True}
COMMON = {"date": "2026-11-24", "commit": "0123456789abcdef", "machine": MACHINE}


def collective(op, ranks, size, buffer, us, ratio):
    return {"op": op, "dtype": "f32", "ranks": ranks, "bytes": size, "buffer": buffer, "lockstep_us": us, "ratio": ratio,
            "of_triad": 0.5, "best": True}


COLLECTIVES = {**COMMON, "peers": {"openmpi": "Open MPI 5"}, "settings": {"pairs": 11}, "rows": [
    collective(op, ranks, size, buffer, 7.51 if size < 1 << 20 else 1234.0, 0.84 if buffer == "private" else 3.14)
    for op in ("all_reduce", "broadcast") for ranks in (2, 4) for size in (65536, 1 << 20) for buffer in ("private", "arena")]
    + [collective("send_recv", 2, size, "private", us, 1.04) for size, us in ((4, 0.25), (4 << 20, 361.0))]}
SPREAD = {"median": 1.23, "low": 1.0, "high": 2.0}
TRAINING = {**COMMON, "settings": {"ranks": 2, "rounds": 7}, "programs": [
    {"model": "mlp", "optimizer": "sgd", "program": "ddp", "images_per_s": {"median": 1512.0}, "of_alone": SPREAD,
     "allocator": "shared heap", "faults_per_step": 4.2, "settings": {}, "tried": []},
    {"model": "mlp", "optimizer": "sgd", "program": "torch_ddp", "images_per_s": {"median": 900.0}, "of_alone": None,
     "allocator": "malloc", "faults_per_step": 7000.0, "settings": {"malloc": "kept", "fused": True, "bucket-cap-mb": 25},
     "tried": [{"settings": {"malloc": "malloc", "fused": False, "bucket-cap-mb": 25}, "images_per_s": 800.0}]}],
    "rows": [{"model": "mlp", "optimizer": "sgd", "mode": "ddp", "peer": "torch_ddp", "ratio": SPREAD}]}
ENGINE = {**COMMON, "settings": {"ranks": 2, "pairs": 5}, "rows": [
    {"case": "one after the other", "bytes": 64, "lockstep": 2.9, "peer": "horovod", "cycle_ms": cycle, "peer_value": value}
    for cycle, value in ((1.0, 1100.0), (0.1, 210.0))]}
HOSTS = {**COMMON, "links": [{"link": "10g", "hosts": 2}, {"link": "veth", "hosts": 2}], "settings": {"pairs": 7}, "rows": [
    {"op": "all_reduce", "link": link, "buffer": buffer, "bytes": size, "lockstep_us": 5.21 if size == 64 else 663.0,
     "of_exchange": 1.06, "peers": {"gloo": {"us": 270.0, "ratio": 51.8}, "impi": {"us": 4.2, "ratio": 0.78}},
     "by_mpi": {"impi": {"us": 5.6, "of_mpi": 0.73}}}
    for link in ("10g", "veth") for size in (64, 1 << 20) for buffer in ("private", "arena")]}
NAMES = ("collectives-2", "collectives-4", "hosts", "training", "engine")


def marked(name, text="", by_hand=""):
    return f"<!-- figures: {name}{by_hand} -->\n{text}<!-- end of figures -->\n"


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.readme = self.folder / "README.md"
        self.readme.write_text("Before.\n" + "".join(map(marked, NAMES)) + "After.\n")
        (self.folder / "benchmarks/results").mkdir(parents=True)
        for name, made in (("collectives", COLLECTIVES), ("hosts", HOSTS), ("training_mlp", TRAINING), ("engine", ENGINE)):
            self.keep(name, made)

    def keep(self, name, made):
        (self.folder / f"benchmarks/results/{name}.json").write_text(json.dumps(made))

    def forget(self, name):
        (self.folder / f"benchmarks/results/{name}.json").unlink()

    def run_script(self, *words):
        return subprocess.run([sys.executable, script, *words, self.folder], capture_output=True, text=True)

    def refused(self):
        made = self.run_script("--check")
        self.assertEqual(made.returncode, 1, made.stdout)
        return made.stderr

    def written(self):
        made = self.run_script()
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.run_script("--check").returncode, 0)
        return self.readme.read_text()

    def test_have_the_figures_what_they_were_measured_on_and_what_is_slower(self):
        text = self.written()
        self.assertTrue(text.startswith("Before.\n") and text.endswith("After.\n"))
        for part in ("by 2 ranks", "by 4 ranks", "Open MPI 5", "2026-11-24", "0123456789", "Some Processor",
                     "| Lockstep, buffers of the program's own | 7.5 µs | 1.2 ms |",
                     "| Lockstep, 10 Gbit/s | 5.2 µs (0.78) | 660 µs (0.78), 1.1 |", "| Lockstep, not shaped | 5.2 µs (0.78) | 660 µs (0.78) |",
                     "| on Intel MPI, not shaped | 0.73 | 0.73 |",
                     "| times as fast as the best of the others | 0.84 | 0.84 |", "| 3.1 | 3.1 |",
                     "| of a triad over as many bytes |  | 0.5 |", "| broadcast | 7.5 µs, 0.84 times | 1.2 ms, 0.84 times |",
                     "A message, one way: 4 B 0.25 µs, 1.0 times as fast as the best of the others; 4 MiB 360 µs, 1.0 times",
                     "| mlp | sgd | `torch_ddp` (fused) | 900 |  | malloc | 7000 |",
                     "| mlp | sgd | `ddp` | 1500 | 1.2 | shared heap | 4 |", "| mlp | sgd | `ddp` | 1.2 |",
                     "| one after the other | 64 B | 2.9 µs | 1.1 ms | 210 µs |"):
            self.assertIn(part, text)
        self.assertLess(text.index("buffers of the program's own"), text.index("buffers in the arena"))

    def test_of_training_have_all_models_and_say_where_each_was_measured_if_not_all_alike(self):
        convnet = copy.deepcopy(TRAINING)
        for row in (*convnet["programs"], *convnet["rows"]):
            row["model"] = "convnet"
        self.keep("training_convnet", convnet)
        text = self.written()
        self.assertIn("images a second (Some Processor, 2 cores, Linux 6; 2026-11-24, commit 0123456789; medians of 7", text.replace("\n", " "))
        self.assertLess(text.index("| convnet | sgd | `ddp` | 1500"), text.index("| mlp | sgd | `ddp` | 1500"))
        self.assertLess(text.index("| convnet | sgd | `ddp` | 1.2 |"), text.index("| mlp | sgd | `ddp` | 1.2 |"))
        self.keep("training_convnet", {**convnet, "date": "2026-12-01"})
        text = self.written().replace("\n", " ")
        self.assertIn("convnet: Some Processor, 2 cores, Linux 6; 2026-12-01, commit 0123456789; medians of 7 rounds; mlp: Some",
                      text)

    def test_that_somebody_changed_are_refused(self):
        self.readme.write_text(self.written().replace("0.84", "1.84"))
        self.assertIn("are not those of benchmarks/results", self.refused())

    def test_of_older_figures_are_refused(self):
        self.written()
        newer = copy.deepcopy(ENGINE)
        newer["rows"][0]["lockstep"] = 3.5
        self.keep("engine", newer)
        self.assertIn("are not those of benchmarks/results", self.refused())

    def test_without_figures_are_refused(self):
        self.written()
        self.forget("training_mlp")
        self.assertIn("'training', but benchmarks/results has no figures of training", self.refused())

    def test_that_are_missing_are_refused(self):
        self.readme.write_text("".join(map(marked, NAMES[:-1])))
        self.assertIn("README has no <!-- figures: engine -->", self.refused())

    def test_with_a_broken_or_unknown_mark_are_refused(self):
        self.readme.write_text("<!-- figures: engine -->\n")
        self.assertIn("no <!-- end of figures -->", self.refused())
        self.readme.write_text(marked("speed"))
        self.assertIn("'speed', which nobody writes", self.refused())

    def test_by_hand_may_stay_until_there_are_figures(self):
        by_hand = marked("engine", "Fast.\n", ", written by hand")
        self.readme.write_text("".join(map(marked, NAMES[:-1])) + by_hand)
        self.assertIn("are not those", self.refused())
        self.forget("engine")
        self.assertIn(by_hand, self.written())
        self.keep("engine", ENGINE)
        text = self.written()
        self.assertNotIn("by hand", text)
        self.assertIn("2.9 µs", text)


if __name__ == "__main__":
    unittest.main()
