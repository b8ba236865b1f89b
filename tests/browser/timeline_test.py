"""Timelines in Perfetto's pages: what is in the file is what they show."""
import collections
import json
import unittest

import browser
from perfetto import Perfetto
from runs import BOTH_FORMATS, OPERATORS, TIMELINE, TRAINING

QUERY = """async sql => {
  const found = await app.trace.engine.query(sql), names = found.columns(), rows = [];
  const plain = value => typeof value === "bigint" ? Number(value) : value;
  for (const row = found.iter({}); row.valid(); row.next()) rows.push(names.map(name => plain(row.get(name))));
  return rows;
}"""
SLICES = """select process.name, thread.tid, slice.depth, slice.name, parent.name
  from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
  left join slice parent on slice.parent_id = parent.id"""
# The JSON's counters have the name of their argument as well, and its values another prefix.
COUNTERS = """select process.name, replace(process_counter_track.name, ' value', ''), counter.ts, counter.value
  from counter join process_counter_track on counter.track_id = process_counter_track.id join process using (upid)
  order by 1, 2, 3, 4"""
VALUES = """select process.name, slice.name, slice.ts, substr(args.key, instr(args.key, '.') + 1), args.display_value
  from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
  join args using (arg_set_id) where args.key like '%.%' order by 1, 2, 3, 4, 5"""
TIMES = """select process.name, thread.name, slice.category, slice.name, slice.ts, slice.dur
  from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
  order by 1, 2, 3, 4, 5, 6"""


class Opened:
    """A timeline in Perfetto, and what it holds by the file itself."""

    def __init__(self, chromium, timeline, shown=None):
        """`shown`: another file with the same, in another format."""
        self.events = json.loads(timeline.read_text())["traceEvents"]
        with Perfetto(shown or timeline) as served:
            self.opened = chromium.open(served.address)
            self.page = self.opened.page
            self.page.wait_for_function("window.app?.trace?.workspaces.currentWorkspace.children.length > 0", timeout=60000)
            self.page.evaluate("waitForPerfettoIdle()")

    def ask(self, sql):
        return [tuple(row) for row in self.page.evaluate(QUERY, sql)]

    def ranks(self):
        return {event["pid"]: event["args"]["name"] for event in self.events if event["name"] == "process_name"}

    def slices(self):
        """As SLICES: each with its depth and what it is in, from the times in the file."""
        rows, ranks = collections.defaultdict(list), self.ranks()
        for event in self.events:
            if event["ph"] == "X":
                begin = round(event["ts"] * 1000)
                rows[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 1000), event["name"]))
        found = collections.Counter()
        for (rank, row), ranges in rows.items():
            within = []
            for begin, end, name in sorted(ranges, key=lambda one: (one[0], -one[1])):
                while within and within[-1][1] <= begin:
                    within.pop()
                found[ranks[rank], row, len(within), name, within[-1][2] if within else None] += 1
                within.append((begin, end, name))
        return found


class TimelineInPerfetto(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.browser = self.enterContext(browser.Browser())

    def check(self, opened, ranks):
        """Nothing was refused, and each slice is where the file has it."""
        self.assertEqual(opened.ask("select name, idx, value from stats where severity != 'info' and value != 0"), [])
        self.assertEqual(opened.page.evaluate("app.trace.loadingErrors.map(String)"), [])
        self.assertEqual(opened.page.get_by_text("something went wrong").count(), 0)
        self.assertEqual(opened.ask("select tid from thread_track join thread using (utid) where is_main_thread"), [])
        self.assertEqual(sorted(opened.ranks()), list(range(ranks)))
        self.assertEqual(collections.Counter(opened.ask(SLICES)), opened.slices())

    def test_shows_all_ranks_of_a_training(self):
        opened = Opened(self.browser, TRAINING / "timeline.json")
        self.check(opened, 2)
        titles = opened.page.evaluate("app.trace.workspaces.currentWorkspace.children.map(one => one.name)")
        self.assertEqual({title.rsplit(" ", 1)[0] for title in titles}, set(opened.ranks().values()))
        self.assertGreater(opened.slices()[opened.ranks()[1], 10000, 1, "forward, backward", "step 20"], 0)
        self.draw(opened, "step 30")

    def draw(self, opened, step):
        """A picture of that step and a few more."""
        opened.page.evaluate("app.commands.runCommand('dev.perfetto.ExpandAllGroups')")
        begin = min(event["ts"] for event in opened.events if event["name"] == step)
        opened.page.evaluate("at => app.trace.timeline.setViewportTime(BigInt(at), BigInt(at + 6000000))",
                                  round(begin * 1000))
        opened.page.evaluate("waitForPerfettoIdle()")
        opened.opened.picture("perfetto")

    def test_shows_operators_within_the_programs_ranges(self):
        opened = Opened(self.browser, OPERATORS / "timeline.json")
        self.check(opened, 2)
        self.assertGreater(sum(number for (*_, depth, name, within), number in opened.slices().items()
                               if name.startswith("aten::") and within == "forward"), 100)

    def test_shows_ranges_threads_and_calls_under_way_at_once(self):
        opened = Opened(self.browser, TIMELINE)
        self.check(opened, 3)

    def test_shows_the_same_in_its_own_format(self):
        own = BOTH_FORMATS / "timeline.pftrace"
        opened = Opened(self.browser, BOTH_FORMATS / "timeline.json", own)
        self.check(opened, 3)
        self.assertLess(own.stat().st_size, (BOTH_FORMATS / "timeline.json").stat().st_size / 2)
        as_json = Opened(self.browser, BOTH_FORMATS / "timeline.json")
        for ask in (COUNTERS, VALUES, TIMES):
            found = opened.ask(ask)
            self.assertGreater(len(found), 10)
            self.assertEqual(found, as_json.ask(ask))


if __name__ == "__main__":
    browser.main()
