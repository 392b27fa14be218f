"""A web server of a folder for tests, which can be stopped. It supports ranges, as a store of published tables must."""

from __future__ import annotations

import contextlib
import http.server
import pathlib
import re
import threading
from collections.abc import Callable, Iterator


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.observe()
        path = self.server.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = path.read_bytes()
        selected = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        body = content if selected is None else content[int(selected[1]) : int(selected[2]) + 1]
        self.send_response(200 if selected is None else 206)
        if selected is not None:
            start = int(selected[1])
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    # A test can leave requests that never end.
    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: pathlib.Path, observe: Callable[[], object]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.observe = folder, observe


@contextlib.contextmanager
def serving_folder(folder: pathlib.Path, observe: Callable[[], object] = lambda: None) -> Iterator[str]:
    """Serve a folder until the end of the block. Yields the URL. `observe` is called before each response."""
    server = _Server(folder, observe)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
