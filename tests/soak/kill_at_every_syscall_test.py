"""The tool that kills at every system call finds a writer that is not careful, and lets a careful one pass."""
import os
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.realpath(__file__)), "kill_at_every_syscall")
SKIPPED = 77
CAREFUL = "printf new >{0}.tmp && mv {0}.tmp {0}"
CARELESS = "printf new >{0}"
OLD_OR_NEW = 'case "$(cat {0})" in old|new) ;; *) echo "neither old nor new: $(cat {0})"; exit 1;; esac'


class KillAtEverySystemCall(unittest.TestCase):
    def kill(self, script, *more):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "file")
            done = subprocess.run(
                [TOOL, "--prepare", f"rm -f {file}*; printf old >{file}", "--check", OLD_OR_NEW.format(file), "--around",
                 file, *more, "--", "/bin/sh", "-c", script.format(file)], text=True, capture_output=True)
        if done.returncode == SKIPPED:
            self.skipTest(done.stdout)
        return done

    def test_passes_a_careful_writer(self):
        done = self.kill(CAREFUL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"killed \d+ times, came through 0 times, 0 misses")

    def test_finds_a_careless_writer(self):
        done = self.kill(CARELESS)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("neither old nor new", done.stdout)

    def test_passes_a_careful_writer_at_any_call(self):
        done = self.kill(CAREFUL, "--calls", "all")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_kills_no_more_often_than_it_is_told(self):
        done = self.kill(CAREFUL, "--calls", "all", "--at-most", "3")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("killed 3 times, came through 0 times, 0 misses", done.stdout)

    def test_a_command_that_fails_by_itself_is_no_test(self):
        done = self.kill("exit 3")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("fails by itself (3)", done.stderr)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(SKIPPED if result.skipped else 0 if result.wasSuccessful() else 1)
