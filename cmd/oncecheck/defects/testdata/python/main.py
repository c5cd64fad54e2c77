"""A payments API in Python without dependencies: python3 main.py naive|correct. It prints its address."""
import importlib, json, sys, threading, time, uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

payments, lock = [], threading.Lock()


def pay(request):
    """The handler: it knows nothing of keys."""
    try:
        order = json.loads(request["body"])
    except ValueError:
        return problem(400, "the body is not JSON")
    time.sleep(1 if "slow" in request["query"] else 0.02)  # the bank
    payment = {"id": str(uuid.uuid4()), "user": request["user"], "amount": order["amount"]}
    with lock:
        payments.append(payment)
    headers = {"Content-Type": "application/json", "Location": "/payments/" + payment["id"]}
    return 201, headers, json.dumps(payment).encode()


def problem(status, title, **headers):
    body = json.dumps({"type": "about:blank", "title": title, "status": status}).encode()
    return status, {"Content-Type": "application/problem+json", "Cache-Control": "no-store", **headers}, body


class API(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with lock:
            self.answer(200, {"Content-Type": "application/json"}, json.dumps(payments).encode())

    do_HEAD = do_GET

    def do_POST(self):
        body = self.read()
        if body is None:
            self.close_connection = True
            return self.answer(*problem(400, "the body is incomplete"))
        url = urlsplit(self.path)
        if url.path != "/payments":
            return self.answer(*problem(404, "there are payments only"))
        self.answer(*protected_pay({
            "user": self.headers["Authorization"], "path": url.path, "query": url.query, "body": body,
            "keys": self.headers.get_all("Idempotency-Key", []),
        }))

    def read(self):
        """Returns the body, or None if the client has not sent all of it."""
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            return body if len(body) == length else None
        body = b""
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        return body if self.rfile.readline() == b"\r\n" else None

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_):
        """A client that has gone is nothing to print."""


protected_pay = importlib.import_module(sys.argv[1]).once(pay, problem)
server = Server(("127.0.0.1", 0), API)
print("http://127.0.0.1:%d/payments" % server.server_port, flush=True)
server.serve_forever()
