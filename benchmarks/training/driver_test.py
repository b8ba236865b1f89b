#!/usr/bin/env python3
"""What script/bench training does with reports, and real runs of it. Environment: LOCKSTEP_BINARY_DIR for the last."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
here = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(here), str(here.parent / "collectives"), str(here.parent / "hosts"), str(here.parent)]

import drivers  # noqa: E402
import model_list  # noqa: E402
import peers  # noqa: E402
import places  # noqa: E402
import programs  # noqa: E402
import rows  # noqa: E402
import sweep  # noqa: E402

CASE = {"model": "mlp", "optimizer": "sgd", "ranks": 2}


def report(images, difference=0, error=0.0, **more):
    return {"images_per_s": images, "faults_per_step": 7.0, "shared_heap": False, "torch": "1",
            "difference_between_ranks": difference, "error_to_one_process": error, **more}


class Together(unittest.TestCase):
    def refused(self, name, **figures):
        try:
            rows.require_together(programs.ALL[name], report(1.0, **figures))
        except peers.Failure as failure:
            return str(failure)
        return None

    def test_the_same_parameters_near_one_process_s_count(self):
        self.assertIsNone(self.refused("ddp", error=0.02))

    def test_ranks_that_end_apart_are_refused_by_name(self):
        self.assertIn("torch_ddp: its ranks did not train together", self.refused("torch_ddp", difference=1e-9))

    def test_ranks_that_are_alike_but_not_as_one_process_are_refused(self):
        for error in (0.11, float("nan")):
            self.assertIn("as one process with the whole batch does", self.refused("horovod", error=error))

    def test_parameters_that_are_no_numbers_are_refused(self):
        self.assertIsNotNone(self.refused("sharded", difference=float("nan")))

    def test_programs_that_are_unconnected_may_end_apart(self):
        self.assertIsNone(self.refused("unconnected", difference=1.0, error=1.0))

    def test_every_program_that_averages_has_a_program_that_it_is_a_share_of(self):
        for program in programs.ALL.values():
            self.assertEqual(program.averages, program.alone in programs.OTHERS, program.name)


class Rows(unittest.TestCase):
    made = {"ddp": [report(90.0, shared_heap=True), report(80.0, shared_heap=True)],
            "unconnected_heap": [report(100.0, shared_heap=True), report(100.0, shared_heap=True)],
            "torch_ddp": [report(45.0), report(20.0)]}
    settings = {"ddp": {}, "unconnected_heap": {}, "torch_ddp": {"malloc": "kept", "fused": True}}

    def test_programs_are_shares_of_their_own_unconnected_ones(self):
        made = {row["program"]: row for row in rows.program_rows(CASE, self.made, self.settings, dict.fromkeys(self.made, []))}
        self.assertEqual(made["ddp"]["of_alone"]["median"], 0.85)
        self.assertEqual((made["ddp"]["alone"], made["ddp"]["allocator"]), ("unconnected_heap", "shared heap"))
        self.assertIsNone(made["torch_ddp"]["of_alone"])  # its own did not run
        self.assertEqual(made["torch_ddp"]["settings"], {"malloc": "kept", "fused": True})

    def test_ratios_are_of_rounds_and_have_both_sides_allocator_and_faults(self):
        row, = [row for row in rows.ratio_rows(CASE, self.made, self.settings, ["ddp"]) if row["peer"] == "torch_ddp"]
        self.assertEqual(row["ratio"], {"median": 3.0, "low": 2.5, "high": 3.5})
        self.assertEqual((row["allocator"], row["peer_allocator"]), ("shared heap", "malloc, thresholds raised"))
        self.assertEqual((row["faults_per_step"], row["peer_faults_per_step"]), (7.0, 7.0))


    def test_the_bound_is_the_longer_of_computing_and_the_link(self):
        def step(microseconds):
            return [{"step_us": each, "parameter_bytes": 1_000_000} for each in microseconds]

        made = {"ddp": step([10000.0, 20000.0, 40000.0]), "ddp_bf16": step([8000.0] * 3), "torch_ddp": step([1.0] * 3),
                "unconnected_heap": step([6000.0] * 3)}
        bounds = {row["program"]: row for row in rows.bound_rows(10**9, 2, made)}
        self.assertEqual(sorted(bounds), ["ddp", "ddp_bf16"])
        self.assertEqual((bounds["ddp"]["wire_us"], bounds["ddp_bf16"]["wire_us"]), (8000, 4000))
        self.assertEqual((bounds["ddp"]["of_bound"]["median"], bounds["ddp_bf16"]["of_bound"]["median"]), (0.4, 0.75))


class Sweep(unittest.TestCase):
    def test_what_is_faster_stays_for_the_settings_that_follow(self):
        rates = {(1, False): 10, (2, False): 20, (3, False): 15, (2, True): 30}
        chosen, tried = sweep.best_settings({"a": [1, 2, 3], "b": [False, True]},
                                            lambda found: [rates[found["a"], found["b"]]] * 3)
        self.assertEqual(chosen, {"a": 2, "b": True})
        self.assertEqual([made["images_per_s"] for made in tried], [10, 20, 15, 30])

    def test_a_gain_within_the_noise_changes_nothing(self):
        chosen, _ = sweep.best_settings({"a": [1, 2]}, lambda found: [1000 + found["a"]])
        self.assertEqual(chosen, {"a": 1})

    def test_a_single_lucky_run_changes_nothing(self):
        chosen, _ = sweep.best_settings({"a": [1, 2]}, lambda found: [10, 10, 90 if found["a"] == 2 else 10])
        self.assertEqual(chosen, {"a": 1})

    def test_a_program_without_settings_is_not_run(self):
        self.assertEqual(sweep.best_settings({}, None), ({}, []))


class Settings(unittest.TestCase):
    def start(self, name, **settings):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder)
            (build / "bin").mkdir()
            (build / "bin" / "training_step").touch()
            started, words = programs.contestant(programs.ALL[name], places.ThisMachine(build, 2), settings)
            return started.environment, words

    def test_become_words_and_variables(self):
        environment, words = self.start("torch_ddp", **{"malloc": "kept", "fused": True, "static-graph": False,
                                                        "bucket-cap-mb": 100})
        self.assertEqual(words, ["--fused", "--bucket-cap-mb", "100"])
        self.assertIn("MALLOC_TRIM_THRESHOLD_", environment)

    def test_defaults_change_nothing(self):
        environment, words = self.start("unconnected", malloc="malloc", fused=False)
        self.assertEqual(words, [])
        self.assertEqual(environment.get("MALLOC_TRIM_THRESHOLD_"), os.environ.get("MALLOC_TRIM_THRESHOLD_"))


@unittest.skipUnless("LOCKSTEP_BINARY_DIR" in os.environ, "LOCKSTEP_BINARY_DIR says where Lockstep is built")
class RealRun(unittest.TestCase):
    def bench(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            build = os.environ["LOCKSTEP_BINARY_DIR"]
            result = subprocess.run([here / "run", "--build", build, "--json", file, "--models", "convnet", "--rounds", "1",
                                     "--steps", "2", "--warm-up", "1", "--sweep-rounds", "0", *words],
                                    capture_output=True, text=True)
            return result, json.loads(file.read_text())["models"]["convnet"] if file.exists() else None

    def test_the_program_knows_the_models_of_the_list(self):
        program = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "bin" / "training_step"
        result = subprocess.run([program, "--model", "none"], capture_output=True, text=True)
        self.assertIn("{" + ",".join(sorted(model_list.MODELS)) + "}", result.stderr)

    def test_all_our_ways_train_as_one_process_does(self):
        result, made = self.bench("--others", "unconnected,unconnected_heap,unconnected_in_step,unconnected_tuned,unconnected_kept")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = {row["program"]: row for row in made["programs"]}
        for name in programs.OURS:
            self.assertLess(found[name]["error_to_one_process"], 1e-3)
            self.assertEqual(found[name]["allocator"], "shared heap")
            self.assertGreater(found[name]["of_alone"]["median"], 0)
        self.assertEqual(found["unconnected"]["allocator"], "malloc")
        for name in ("unconnected_heap", "unconnected_in_step"):
            self.assertEqual(found[name]["allocator"], "shared heap")

    def test_trains_between_hosts_over_a_shaped_link(self):
        drivers.require_hosts(self, "10g")
        result, made = self.bench("--hosts", "2", "--link", "10g", "--ours", "ddp,ddp_bf16", "--others", "unconnected_heap")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = {row["program"]: row for row in made["programs"]}
        self.assertLess(found["ddp"]["error_to_one_process"], 1e-3)
        self.assertLess(found["ddp_bf16"]["error_to_one_process"], 0.05)
        self.assertGreater(found["ddp_bf16"]["error_to_one_process"], found["ddp"]["error_to_one_process"])
        self.assertEqual(found["ddp"]["allocator"], "shared heap")
        self.assertEqual([row["program"] for row in made["bounds"]], ["ddp", "ddp_bf16"])
        self.assertEqual(made["link"]["rate_bits"], 10**10)

    def test_a_row_without_averaging_is_refused(self):
        result, made = self.bench("--ours", "ddp", "--others", "none", "--without-averaging")
        self.assertEqual(result.returncode, 1)
        self.assertIn("ddp: its ranks did not train together", result.stderr)
        self.assertIsNone(made)

    @unittest.skipUnless(programs.python_of("torch"), "script/bootstrap --peers torch installs it")
    def test_a_peer_s_row_without_averaging_is_refused(self):
        result, _ = self.bench("--ours", "none", "--others", "torch_ddp", "--without-averaging")
        self.assertEqual(result.returncode, 1)
        self.assertIn("torch_ddp: its ranks did not train together", result.stderr)


if __name__ == "__main__":
    unittest.main()
