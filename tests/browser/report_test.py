"""Reports as one reads them: on wide and narrow screens, in light and dark, with a mouse and with keys alone."""
import collections
import unittest

import browser
from runs import COMPARISON, FAILURE, ODD_NAMES, TRAINING

# What is wider than the page and not in a part that scrolls by itself.
TOO_WIDE = """() => [...document.querySelectorAll("main *")].filter(one => {
  const box = one.getBoundingClientRect();
  return (box.right > innerWidth || box.left < 0) && !one.closest(".scroll table");
}).map(one => one.outerHTML.slice(0, 100))"""
AXIS, TITLE, ROW = 24, 22, 18  # heights in the timeline


class TimelineOf:
    """That of a page, as a mouse finds it. `row`: of the first rank, from 0."""

    def __init__(self, opened):
        self.page = opened.page
        self.canvas = self.page.locator(".timeline canvas")
        self.canvas.scroll_into_view_if_needed()

    def point(self, x, row):
        box = self.canvas.bounding_box()
        return box["x"] + x, box["y"] + AXIS + TITLE + row * ROW + ROW / 2

    def said(self):
        return self.page.locator(".details").text_content()

    def hover(self, x, row):
        self.page.mouse.move(*self.point(x, row))
        return self.said()

    def all_of(self, row):
        """What it says of that row."""
        return set(self.places(row).values())

    def places(self, row):
        """x -> what it says there, for every fourth x."""
        found = self.canvas.evaluate("""(canvas, y) => {
          const box = canvas.getBoundingClientRect(), details = document.querySelector(".details"), found = [];
          for (let x = 2; x < box.width; x += 4) {
            details.textContent = "";
            const place = {clientX: box.x + x, clientY: box.y + y};
            canvas.dispatchEvent(new PointerEvent("pointermove", place));
            if (details.textContent) found.push([x, details.textContent]);
          }
          return found;
        }""", AXIS + TITLE + row * ROW + ROW / 2)
        return dict(map(tuple, found))

    def drawn(self, row):
        """How many pixels of that row have a colour."""
        return self.canvas.evaluate("""(canvas, y) => {
          const ratio = canvas.width / canvas.clientWidth;
          const pixels = canvas.getContext("2d").getImageData(0, y * ratio, canvas.width, 1).data;
          return pixels.filter((value, i) => i % 4 === 3 && value > 0).length;
        }""", AXIS + TITLE + row * ROW + ROW // 2)

    def picture(self):
        return self.canvas.evaluate("canvas => canvas.toDataURL()")

    def wheel(self, x, row, by):
        self.page.mouse.move(*self.point(x, row))
        self.page.mouse.wheel(0, by)
        self.page.evaluate("new Promise(requestAnimationFrame)")

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)


class ReportInABrowser(unittest.TestCase):
    def setUp(self):
        self.browser = self.enterContext(browser.Browser())

    def open(self, page, **screen):
        opened = self.browser.open(page.as_uri(), **screen)
        self.addCleanup(lambda: self.assertEqual(opened.problems, []))
        return opened

    def check(self, page, name):
        for width in (1280, 400):
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    opened = self.open(page, width=width, dark=dark)
                    for numbers in opened.page.locator("details > summary").all():
                        numbers.click()
                    opened.picture(f"{name}_{width}_{'dark' if dark else 'light'}")
                    self.assertEqual(opened.page.evaluate("document.documentElement.scrollWidth"), width)
                    self.assertEqual(opened.page.evaluate(TOO_WIDE), [])
                    self.assertEqual(opened.accessibility(), [])

    def test_of_a_training_is_readable_on_any_screen(self):
        self.check(TRAINING / "report.html", "training")

    def test_of_two_runs_is_readable_on_any_screen(self):
        self.check(COMPARISON, "comparison")

    def test_of_a_failure_is_readable_on_any_screen(self):
        self.check(FAILURE / "report.html", "failure")

    def test_takes_no_name_for_markup(self):
        self.check(ODD_NAMES / "report.html", "odd_names")
        opened = self.open(ODD_NAMES / "report.html")
        page, timeline = opened.page, TimelineOf(opened)
        self.assertEqual(page.title(), f"Report of {ODD_NAMES} – Lockstep")
        self.assertEqual(page.locator("h1").text_content(), f"Report of {ODD_NAMES}")
        said = "\n".join(told for row in range(7) for told in timeline.all_of(row))
        for name in ('<script>document.title = "taken"</script>', '<img src=x onerror="document.title = 1">',
                     '"quoted" & \'so\' </script><b>'):
            self.assertIn(f": {name}, at ", said)

    def test_zooms_and_moves_by_mouse(self):
        timeline = TimelineOf(self.open(TRAINING / "report.html"))
        everything = timeline.places(0)
        sizes = collections.Counter(everything.values())
        chosen = max((told for told in sizes if sizes[told] < len(everything) / 12), key=sizes.get)
        places = [x for x in everything if everything[x] == chosen]
        x = places[len(places) // 2]

        timeline.page.keyboard.down("Control")
        for _ in range(10):
            timeline.wheel(x, 0, -100)
        timeline.page.keyboard.up("Control")
        zoomed = timeline.places(0)
        self.assertEqual(zoomed[x], chosen)
        self.assertGreater(collections.Counter(zoomed.values())[chosen], 4 * sizes[chosen])

        timeline.hover(x, 0)
        timeline.page.mouse.down()
        timeline.page.mouse.move(*timeline.point(x + 240, 0), steps=5)
        timeline.page.mouse.up()
        moved = timeline.places(0)
        there = {x + 240: told for x, told in zoomed.items() if x + 240 in moved}
        self.assertLess(sum(moved[x] != there[x] for x in there), len(there) / 20)  # but for edges, which are rounded
        self.assertGreater(sum(moved[x] != zoomed.get(x) for x in moved), 20)

        timeline.page.get_by_role("button", name="All").click()
        self.assertEqual(timeline.places(0), everything)
        timeline.wheel(x, 0, -100)  # without Ctrl it is the page's
        self.assertEqual(timeline.places(0), everything)
        for _ in range(4):
            timeline.page.get_by_role("button", name="Zoom in").click()
        self.assertLess(len(timeline.all_of(0)), len(sizes) / 3)

    def test_filters_by_name_and_rank(self):
        timeline = TimelineOf(self.open(TRAINING / "report.html"))
        self.assertGreater(min(timeline.drawn(row) for row in range(3)), 20)
        timeline.page.get_by_label("Only names with").fill("Forward")
        self.assertEqual([timeline.drawn(row) > 20 for row in range(3)], [False, False, True])
        self.assertEqual(timeline.all_of(0), set())
        self.assertEqual([told for told in timeline.all_of(2) if not told.startswith("rank 0: forward, at ")], [])
        timeline.page.get_by_label("Only names with").fill("")
        self.assertGreater(min(timeline.drawn(row) for row in range(3)), 20)
        timeline.page.get_by_role("combobox").select_option("1")
        self.assertEqual([told for told in timeline.all_of(0) if not told.startswith("rank 1: step ")], [])
        self.assertGreater(len(timeline.all_of(0)), 10)

    def test_goes_by_keys_alone(self):
        timeline = TimelineOf(self.open(ODD_NAMES / "report.html"))
        for _ in range(30):
            timeline.press("Tab")
            if timeline.canvas.evaluate("canvas => canvas === document.activeElement"):
                break
        timeline.press("n", "n", "n")
        third = timeline.said()
        self.assertRegex(third, r"^rank 0: all_\w+ \d+, at ")
        timeline.press("n", "p")
        self.assertEqual(timeline.said(), third)
        timeline.press(*["ArrowDown"] * 60)
        self.assertRegex(timeline.said(), "^rank 4: ")
        # The last row that has anything, which is out of sight at first, is in sight.
        self.assertGreater(timeline.page.locator(".timeline").evaluate("box => box.scrollTop"), 0)
        timeline.press(*["ArrowUp"] * 60)
        self.assertRegex(timeline.said(), "^rank 0: ")
        self.assertEqual(timeline.page.locator(".timeline").evaluate("box => box.scrollTop"), 0)
        before = timeline.picture()
        timeline.press("+", "+", "+")
        self.assertNotEqual(timeline.picture(), before)  # if by nothing else, then by the times of its axis
        timeline.press("0")
        self.assertEqual(timeline.picture(), before)

    def test_changes_colours_with_the_screen(self):
        timeline = TimelineOf(self.open(TRAINING / "report.html"))

        def colours(screen):
            timeline.page.emulate_media(color_scheme=screen)
            timeline.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            return timeline.page.evaluate("""() => [...document.querySelectorAll("canvas")].map(one => {
              const pixels = one.getContext("2d").getImageData(0, 0, one.width || 1, one.height || 1).data, found = {};
              for (let i = 0; i < pixels.length; i += 4)
                if (pixels[i + 3] === 255) found[pixels.slice(i, i + 3)] = (found[pixels.slice(i, i + 3)] ?? 0) + 1;
              return Object.entries(found).sort((a, b) => b[1] - a[1]).slice(0, 4).map(one => one[0]);
            })""")

        light, dark = colours("light"), colours("dark")
        self.assertEqual([one for one in zip(light, dark) if one[0] and set(one[0]) & set(one[1])], [])
        self.assertEqual(colours("light"), light)

    def test_says_numbers_of_bars(self):
        page = self.open(TRAINING / "report.html").page
        chart = page.locator(".chart canvas").first
        bar = chart.evaluate("""canvas => {
          const {x, y, base} = Chart.getChart(canvas).getDatasetMeta(0).data[0];
          return [(x + base) / 2, y];
        }""")
        chart.hover(position={"x": bar[0], "y": bar[1]})
        page.wait_for_function("Chart.getChart(document.querySelector('.chart canvas')).tooltip.opacity > 0")
        told = chart.evaluate("canvas => Chart.getChart(canvas).tooltip.body[0].lines")
        self.assertRegex(told[0], r"^a step: \d+\.\d{3} ms$")


if __name__ == "__main__":
    browser.main()
