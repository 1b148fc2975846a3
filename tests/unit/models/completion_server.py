"""A small HTTP server that speaks the OpenAI protocol, as well or as badly as a test asks."""

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]


def chat(text, finish="stop"):
    body = {"id": "1", "object": "chat.completion", "choices": [
        {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    ]}  # fmt: skip
    return 200, {}, json.dumps(body).encode()


def plain(text, finish="stop"):
    body = {"id": "1", "object": "text_completion", "choices": [
        {"index": 0, "finish_reason": finish, "text": text}
    ]}  # fmt: skip
    return 200, {}, json.dumps(body).encode()


def status(code, text="no", **headers):
    body = {"error": {"message": text, "type": "x", "param": None, "code": "y"}}
    return code, {k.replace("_", "-"): v for k, v in headers.items()}, json.dumps(body).encode()


class Server(ThreadingHTTPServer):
    """Answers by ``script``: (number of the request, its body) -> reply."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: Callable[[int, dict[str, Any]], Reply] = lambda number, body: chat(
            f"reply to {body['messages'][0]['content']}"
        )
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.lock = threading.Lock()
        self.busy = self.busiest = 0
        self.free = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


@contextmanager
def running():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.free.set()
    server.shutdown()
    thread.join()
    server.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        with server.lock:
            number = len(server.requests)
            server.requests.append(
                (self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            )
            server.busy += 1
            server.busiest = max(server.busiest, server.busy)
        code, headers, content = server.script(number, body)
        with server.lock:
            server.busy -= 1
        try:
            self.send_response(code)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True  # the client gave up

    def log_message(self, *args):
        pass
