"""A server on the loopback that answers as a judge would, or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str], str]


class Server:
    """Speaks the chat protocol on the loopback; ``answer`` maps a prompt to a text or a fault."""

    def __init__(self) -> None:
        self.answer: Answer = lambda prompt: "Verdict: right"
        self.prompts: list[str] = []
        self.request: dict[str, Any] = {}
        self.over = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.request = json.loads(body)
                server.handle(self, server.request["messages"][0]["content"])

            def log_message(self, *_: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def handle(self, handler: BaseHTTPRequestHandler, prompt: str) -> None:
        self.prompts.append(prompt)
        said = self.answer(prompt)
        if said == "<silence>":
            self.over.wait(30)
            return
        usage = {"completion_tokens": 3}
        choice: dict[str, Any] = {"message": {"content": said}, "finish_reason": "stop"}
        if said == "<long>":
            choice["finish_reason"] = "length"
        body = json.dumps({"choices": [choice], "usage": usage})
        if said == "<shape>":
            body = json.dumps({"choices": []})
        elif said == "<text>":
            body = "<html>busy</html>"
        handler.send_response(500 if said == "<500>" else 200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    def close(self) -> None:
        self.over.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()
