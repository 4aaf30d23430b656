"""A server of buckets for tests: gcp-storage-emulator, with Cloud Storage's preconditions and faults.

The emulator ignores `ifGenerationMatch` and leaves the generation out of downloads; both are added here.
"""

import contextlib
import dataclasses
import http.server
import io
import json
import random
import re
import threading
import urllib.parse
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

_OBJECT = re.compile(r"(?:/upload|/download)?(?:/storage/v1)?/b/([^/]+)/o(?:/([^/?]+))?")


@dataclasses.dataclass
class BucketServer:
    """The server, while it runs."""

    url: str
    storage: Any
    faults: float = 0.0
    """Fraction of the requests that are answered with 429 or 503."""
    refusal: HTTPStatus | None = None
    """What every request is answered with, such as 403; None: the object."""
    refused_from: str | None = None
    """Part of a path: from the first request for it on, every request is answered with 401."""
    gone: bool = False
    """Whether connections are closed without an answer."""
    draws: random.Random = dataclasses.field(default_factory=lambda: random.Random(0))
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def environment(self) -> dict[str, str]:
        """Makes the client libraries of a process use this server."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "abc",
        }

    def make_bucket(self, name: str) -> None:
        self.storage.create_bucket(name, {"name": name, "kind": "storage#bucket", "id": name})

    def generation(self, bucket: str, name: str) -> str:
        """Of an object; "0" if there is none."""
        try:
            return str(self.storage.get_file_obj(bucket, name)["generation"])
        except NotFound:
            return "0"


class _Handler(RequestHandler):
    body = b""

    def __init__(self, server: BucketServer, *args: Any) -> None:
        self._server = server
        super().__init__(server.storage, *args)

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def do_GET(self) -> None:
        self._answer(super().do_GET)

    def do_POST(self) -> None:
        self._answer(super().do_POST)

    def do_PUT(self) -> None:
        self._answer(super().do_PUT)

    def do_DELETE(self) -> None:
        self._answer(super().do_DELETE)

    def end_headers(self) -> None:
        bucket, name = self._object()
        if name and self.command == "GET":
            self.send_header("x-goog-generation", self._server.generation(bucket, name))
        super().end_headers()

    def _answer(self, do: Any) -> None:
        server = self._server
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.rfile = io.BytesIO(self.body)  # the emulator reads it again
        if server.gone:
            self.close_connection = True
            return None
        if server.refused_from and server.refused_from in urllib.parse.unquote(self.path):
            server.refusal = HTTPStatus.UNAUTHORIZED
        if server.refusal is not None:
            return self._refuse(server.refusal)
        if server.draws.random() < server.faults:
            return self._refuse(
                server.draws.choice([HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE])
            )
        bucket, name = self._object()
        with server.lock:
            wanted = self._query().get("ifGenerationMatch")
            if wanted is not None and name and server.generation(bucket, name) != wanted:
                return self._refuse(HTTPStatus.PRECONDITION_FAILED)
            return do()

    def _query(self) -> dict[str, str]:
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))

    def _object(self) -> tuple[str, str]:
        """Bucket and name that a request is about; empty where it is about neither."""
        found = _OBJECT.fullmatch(urllib.parse.urlsplit(self.path).path)
        if found is None:
            return "", ""
        return found[1], urllib.parse.unquote(found[2] or self._query().get("name") or self._name_in_body())

    def _name_in_body(self) -> str:
        """The name that an upload gives beside the content."""
        found = re.search(rb'"name": ?("(?:[^"\\\\]|\\\\.)*")', self.body[:4096])
        return json.loads(found[1]) if found else ""

    def _refuse(self, status: HTTPStatus) -> None:
        content = json.dumps({"error": {"code": status.value, "message": status.phrase}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        super().end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def serve(port: int = 0) -> Iterator[BucketServer]:
    """A server with the bucket `bucket`, in memory."""
    server = BucketServer("", Storage(use_memory_fs=True))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, server)) as httpd:
        server.url = f"http://127.0.0.1:{httpd.server_port}"
        server.make_bucket("bucket")
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            httpd.shutdown()
