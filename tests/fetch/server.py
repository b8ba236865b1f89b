#!/usr/bin/env python3
"""A publisher of small data sets, who behaves as the first part of the path says: GET /BEHAVIOUR/FILE.

Says on stdout, a line each: `port N`; `sum FILE MD5 SHA256` of each file; `ready`; then `get FILE RANGE` of each
request (RANGE is "-" where none was asked for) and `holding`. A line on its stdin lets those go on that it holds.
"""
import gzip
import hashlib
import http.server
import io
import random
import struct
import sys
import tarfile
import threading

go_on = threading.Event()
spoken = threading.Lock()
seen = {}  # how often a path was asked for


def say(line):
    with spoken:
        print(line, flush=True)


def images(count, seed):
    return struct.pack(">BBBBIII", 0, 0, 8, 3, count, 28, 28) + random.Random(seed).randbytes(count * 784)


def labels(count):
    return struct.pack(">BBBBI", 0, 0, 8, 1, count) + bytes(i % 10 for i in range(count))


def packed(content):
    return gzip.compress(content, mtime=0)


def tar(members):
    """Of (name, content) or whole TarInfo without content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return packed(buffer.getvalue())


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def batch(seed):
    return b"".join(bytes([i % 10]) + random.Random(seed + i).randbytes(3072) for i in range(3))


TOP = "cifar-10-batches-bin/"
BATCHES = [(f"{TOP}data_batch_{i}.bin", batch(i)) for i in range(1, 6)] + [(TOP + "test_batch.bin", batch(9))]
FILES = {
    "train-images-idx3-ubyte.gz": packed(images(20, 1)),
    "train-labels-idx1-ubyte.gz": packed(labels(20)),
    "t10k-images-idx3-ubyte.gz": packed(images(10, 2)),
    "t10k-labels-idx1-ubyte.gz": packed(labels(10)),
    "cifar-10-binary.tar.gz": tar([special("cifar-10-batches-bin", tarfile.DIRTYPE), (TOP + "readme.html", b"hello"), *BATCHES]),
}
# What stands in the archive's place under these behaviours.
ARCHIVES = {
    "climbing": tar([("../outside.bin", b"bad"), *BATCHES]),
    "climbing_inside": tar([(TOP + "../../outside.bin", b"bad"), *BATCHES]),
    "absolute": tar([("/tmp/outside.bin", b"bad"), *BATCHES]),
    "linking": tar([special(TOP + "data_batch_1.bin", tarfile.SYMTYPE, "/etc/passwd"), *BATCHES[1:]]),
    "hard_linking": tar([special(TOP + "data_batch_1.bin", tarfile.LNKTYPE, "/etc/passwd"), *BATCHES[1:]]),
    "device": tar([special(TOP + "data_batch_1.bin", tarfile.CHRTYPE), *BATCHES[1:]]),
    "incomplete": tar(BATCHES[:-1]),
    "truncated": FILES["cifar-10-binary.tar.gz"][:20000],
    "no_gzip": b"this is no archive" * 100,
    "strange": tar([("extra.bin", b"more"), *BATCHES]),
}


class Publisher(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        _, *parts = self.path.split("/")
        behaviour, name = parts[0], parts[-1]
        say(f"get {name} {self.headers.get('Range', '-')}")
        seen[self.path] = seen.get(self.path, 0) + 1
        content = ARCHIVES.get(behaviour) or FILES.get(name)
        if behaviour in ARCHIVES or not hasattr(self, behaviour):
            behaviour = "ranges"
        try:
            getattr(self, behaviour)(content)
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.close_connection = True

    def start(self, content):
        """The part that was asked for."""
        wanted = self.headers.get("Range")
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if begin >= len(content):
            return self.refuse(416)
        return self.head(content, begin, 206 if wanted else 200)

    def head(self, content, begin, code):
        self.send_response(code)
        if code == 206:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        return content[begin:]

    def refuse(self, code):
        self.send_response(code)
        body = b"<html>no data here</html>"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return b""

    def ranges(self, content):
        self.wfile.write(self.start(content))

    def no_ranges(self, content):
        self.wfile.write(self.head(content, 0, 200))

    def cut(self, content):  # half of what is asked for, each time, while that is much
        part = self.start(content)
        self.wfile.write(part[: len(part) // 2] if len(part) > 1000 else part)

    def cut_no_ranges(self, content):  # the first time
        part = self.head(content, 0, 200)
        self.wfile.write(part[: len(part) // 2] if seen[self.path] == 1 else part)

    def always_cut(self, content):  # at the same place
        part = self.head(content, 0, 200)
        self.wfile.write(part[: len(part) // 2])

    def hold(self, content):
        part = self.start(content)
        self.wfile.write(part[: len(part) // 2])
        self.wfile.flush()
        say("holding")
        go_on.wait(60)
        self.wfile.write(part[len(part) // 2 :])

    def silent(self, content):
        self.head(content, 0, 200)
        self.wfile.flush()
        say("holding")
        go_on.wait(60)

    def wrong(self, content):
        self.wfile.write(self.head(b"x" * len(content), 0, 200))

    def wrong_range(self, content):
        if self.headers.get("Range"):
            self.send_response(206)
            self.send_header("Content-Range", f"bytes 0-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        else:
            self.no_ranges(content)

    def missing(self, _):
        self.refuse(404)

    def failing(self, _):
        self.refuse(503)

    def endless(self, _):  # no length, and no end
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(b"x" * 65536)

    def redirect(self, location):
        self.send_response(302)
        self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def moved(self, _):
        self.redirect("/ranges/" + self.path.rsplit("/", 1)[1])

    def circle(self, _):
        self.redirect(self.path)

    def to_file(self, _):
        self.redirect("file:///etc/passwd")

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Publisher)
    server.daemon_threads = True
    say(f"port {server.server_port}")
    for file, data in FILES.items():
        say(f"sum {file} {hashlib.md5(data).hexdigest()} {hashlib.sha256(data).hexdigest()}")
    for kind, data in ARCHIVES.items():
        say(f"sum {kind} {hashlib.md5(data).hexdigest()} {hashlib.sha256(data).hexdigest()}")
    say("ready")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for _ in sys.stdin:
        go_on.set()
