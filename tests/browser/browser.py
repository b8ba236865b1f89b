"""A headless browser of the peer `browser`, which sees nothing but this machine, and what it has to say of a page."""
import contextlib
import os
import pathlib
import re
import sys
import unittest

import playwright.sync_api

PEER = pathlib.Path(os.environ["LOCKSTEP_PEERS"]) / "browser"
PACKAGES = PEER / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
PICTURES = pathlib.Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "browser" / "pictures"
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/pulseaudio")
FONTS = """<?xml version="1.0"?>
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>
"""

# Of a page's policy; what a script catches is not in the console by itself.
TELL_REFUSALS = "addEventListener('securitypolicyviolation', one => console.error('refused: ' + one.violatedDirective));"


class Page:
    """One page, and what happened in it that should not: console errors, exceptions, refusals of its policy, requests
    for anything but what is below its own address."""

    def __init__(self, page, address):
        self.page, self.address, self.problems = page, address, []
        page.on("console", self.heard)
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("request", self.asked)
        page.on("dialog", self.opened)

    def heard(self, message):
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def asked(self, request):
        if not request.url.startswith(self.address):
            self.problems.append(f"request: {request.url}")

    def opened(self, dialog):
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def picture(self, name):
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

    def accessibility(self):
        """What axe-core finds that is serious or worse, or cannot tell: rule and element."""
        # It cannot tell a text's contrast to a gradient: the shades of what can be scrolled go.
        self.page.evaluate("document.styleSheets[0].insertRule('* { background-image: none !important; }')")
        self.page.evaluate((PACKAGES / "axe_playwright_python" / "axe.min.js").read_text())
        found = self.page.evaluate("axe.run()")
        assert len(found["passes"]) > 5, "axe-core has looked at nothing"
        return [f"{one['id']}: {node['html'][:200]}: {node['failureSummary']}"
                for one in found["violations"] + found["incomplete"] if one["impact"] in ("serious", "critical")
                for node in one["nodes"]]


class Browser:
    def __enter__(self):
        self.exits = contextlib.ExitStack()
        driver = self.exits.enter_context(playwright.sync_api.sync_playwright())
        folder = PICTURES.parent
        folder.mkdir(parents=True, exist_ok=True)
        fonts = folder / "fonts.conf"
        fonts.write_text(FONTS.format(fonts=PEER / "usr/share/fonts", cache=folder / "fonts"))
        libraries = ":".join(str(PEER / one) for one in LIBRARIES)
        self.browser = driver.chromium.launch(
            executable_path=PEER / "usr/lib/chromium/chromium-headless-shell",
            env={**os.environ, "LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(fonts)},
            args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"])
        self.exits.callback(self.browser.close)
        return self

    def __exit__(self, *error):
        self.exits.close()

    def open(self, address, width=1280, height=800, dark=False):
        page = self.browser.new_page(viewport={"width": width, "height": height},
                                     color_scheme="dark" if dark else "light")
        page.add_init_script(TELL_REFUSALS)
        watched = Page(page, address)
        page.goto(address)
        return watched


def main():
    """unittest's, with tests named as ctest does: Suite.ThisName is test_this_name of Suite."""
    named = [re.sub(r"\.(\w+)$", lambda name: ".test" + re.sub("(?=[A-Z])", "_", name[1]).lower(), one)
             for one in sys.argv[1:]]
    unittest.main(argv=[sys.argv[0], *named])
