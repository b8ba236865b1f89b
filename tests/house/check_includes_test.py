#!/usr/bin/env python3
"""The checker must refuse what it is for."""
import pathlib
import tempfile
import unittest

from check_includes import check


class Includes(unittest.TestCase):
    def problems(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / "lockstep" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check(folder)

    def test_down_is_allowed(self):
        self.assertEqual(self.problems({"group/a.cpp": '#include "lockstep/base/error.h"\n'}), [])

    def test_up_is_refused(self):
        self.assertIn("goes up", self.problems({"base/a.h": '#include "lockstep/group/group.h"\n'})[0])

    def test_sideways_is_refused_but_for_tests(self):
        line = '#include "lockstep/kernel/reduce.h"\n'
        self.assertIn("goes sideways", self.problems({"schedule/a.cpp": line})[0])
        self.assertEqual(self.problems({"schedule/a_test.cpp": line}), [])

    def test_transports_do_not_know_each_other(self):
        line = '#include "lockstep/transport/tcp/tcp_transport.h"\n'
        self.assertIn("goes sideways", self.problems({"transport/ring/a.cpp": line})[0])

    def test_libtorch_stays_in_train(self):
        self.assertIn("libtorch", self.problems({"group/a.cpp": "#include <torch/torch.h>\n"})[0])
        self.assertEqual(self.problems({"train/tensor/a.cpp": "#include <torch/torch.h>\n"}), [])

    def test_a_folder_within_a_floor_may_have_one_of_its_own(self):
        profile, rest = '#include "lockstep/view/profile/timeline.h"\n', '#include "lockstep/view/anything.h"\n'
        self.assertEqual(self.problems({"launch/a.h": profile, "view/a.h": profile}), [])
        self.assertIn("goes up", self.problems({"view/profile/a.h": rest})[0])
        self.assertIn("goes up", self.problems({"memory/a.h": profile})[0])

    def test_rooms_of_training_are_floors(self):
        down = '#include "lockstep/train/tensor/device.h"\n'
        self.assertEqual(self.problems({"train/optimizer/a.cpp": down, "train/data_parallel/hooks/a.h": down}), [])
        up = '#include "lockstep/train/trainer/trainer.h"\n'
        self.assertIn("goes up", self.problems({"train/replicas/a.h": up})[0])
        self.assertEqual(self.problems({"train/replicas/a_test.cpp": up}), [])
        sideways = '#include "lockstep/train/checkpoint/checkpoint.h"\n'
        self.assertIn("goes sideways", self.problems({"train/sharded/a.h": sideways})[0])

    def test_training_has_no_files_outside_its_rooms(self):
        self.assertIn("in no room", self.problems({"train/a.h": ""})[0])
        self.assertIn("in no room", self.problems({"train/attic/a.h": ""})[0])

    def test_unknown_floors_and_empty_trees_are_refused(self):
        self.assertTrue(self.problems({"attic/a.h": '#include "lockstep/base/error.h"\n'}))
        self.assertTrue(self.problems({}))


if __name__ == "__main__":
    unittest.main()
