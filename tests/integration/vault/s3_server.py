"""An S3 server of its own, started as a process, and a proxy in front of it that can misbehave."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BUCKET = "private-things"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reached_at(url, secret):
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def s3_server(asks_after=None, bucket=BUCKET):
    """Address of a running server with an empty bucket.

    Args:
        asks_after: Requests that need no key, that for the bucket among them; all where None.
        bucket: Its name.
    """
    port = free_port()
    asks = {} if asks_after is None else {"INITIAL_NO_AUTH_ACTION_COUNT": str(asks_after)}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=os.environ | asks, **quiet) as server:
        try:
            for _ in range(600):
                try:
                    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
                        connection.request("PUT", f"/{bucket}")
                        with connection.getresponse() as answer:
                            answer.read()
                        assert answer.status == 200
                    break
                except OSError:
                    assert server.poll() is None, "the S3 server did not start"
                    time.sleep(0.1)
            yield url
        finally:
            server.kill()


_ANYBODY = (
    "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
    "Signature=none"
)
"""What the server wants of who asks by Google's interface, which is like that of S3."""


class Faulty:
    """A proxy of a server.

    Attributes:
        fail: Answers 500 to this many requests.
        busy: Answers 503 SlowDown to each so-many-th request; 0: to none.
        cut: Breaks this many uploads off in the middle.
        stale: Answers that nothing is there to this many reads.
        slow: Seconds every answer takes.
    """

    def __init__(self, target):
        self.target = target.removeprefix("http://")
        self.fail = self.busy = self.cut = self.stale = 0
        self.slow = 0.0
        self.seen: list[str] = []

    def misbehaves(self, request):
        self.seen.append(request.command)
        time.sleep(self.slow)
        length = int(request.headers.get("Content-Length") or 0)
        if self.cut and request.command == "PUT":
            self.cut -= 1
            request.rfile.read(length // 2)
            request.connection.close()
            return True
        missing = self.stale > 0 and request.command == "GET"
        slow_down = bool(self.busy) and len(self.seen) % self.busy == 0
        if not (self.fail or missing or slow_down):
            return False
        request.rfile.read(length)
        code, body = 500, b""
        if self.fail:
            self.fail -= 1
        elif missing:
            self.stale -= 1
            code = 404
        else:
            code, body = 503, b"<Error><Code>SlowDown</Code><Message>Slow down.</Message></Error>"
        request.send_response(code)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
        return True

    def passes(self, request):
        if self.misbehaves(request):
            return
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in request.headers.items()}
        if not headers.get("authorization", "").startswith("AWS4"):
            headers["authorization"] = _ANYBODY
        with closing(http.client.HTTPConnection(self.target, timeout=60)) as server:
            path = request.path.replace("%2D", "-")  # Google's client writes a bucket's hyphen so
            server.request(request.command, path, body, headers)
            with server.getresponse() as answer:
                content = answer.read()
        request.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                request.send_header(name, value)
        length = answer.getheader("Content-Length") if request.command == "HEAD" else None
        request.send_header("Content-Length", length or str(len(content)))
        request.end_headers()
        request.wfile.write(content)


@contextmanager
def proxied(target):
    faults = Faulty(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self):
            try:
                super().handle_one_request()
            except (OSError, ValueError):
                self.close_connection = True

        def log_message(self, *_):
            pass

        def answer(self):
            faults.passes(self)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
