"""Serve a policy over HTTP: train one (or take a run), export it to ONNX, serve it with the standard library, query it.

`pip install 'pspo[export]'`, then `python examples/export_and_serve.py [--run DIR] [--preset smoke]`.
POST {"state": [0, 100, 1.2]} returns {"action": [...]}; bad input returns status 400 and one sentence.
"""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from timeit import default_timer, timeit
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

import pspo

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--run", help="a finished run (default: train one on liquidation)")
parser.add_argument("--preset", default="laptop")
options = parser.parse_args()
run = options.run or pspo.train("liquidation", preset=options.preset).path
policy = pspo.OnnxPolicy.load(pspo.export_policy(run, "policy.onnx"))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        try:
            size = int(self.headers.get("Content-Length", 0))
            state = np.array(json.loads(self.rfile.read(max(0, min(size, 100_000))))["state"], float)
            if state.shape != (policy.obs_dim,) or not np.isfinite(state).all():
                raise ValueError
            status, answer = 200, {"action": policy(state).tolist()}
        except (ValueError, KeyError, TypeError, RecursionError):
            status, answer = 400, {"error": f'send {{"state": [...]}} with {policy.obs_dim} finite numbers.'}
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Silent, to keep the output readable."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)  # any free port; use a fixed one in service
threading.Thread(target=server.serve_forever, daemon=True).start()
where = f"http://127.0.0.1:{server.server_port}"
for state in ([0, 100, 1.0], [5, 100, 2.4], [19, 60, 1.1], [0, 100], [0, float("nan"), 1.0]):
    begun = default_timer()
    try:
        answer = urlopen(where, json.dumps({"state": state}).encode()).read().decode()
    except HTTPError as refused:
        answer = f"{refused.code} {refused.read().decode()}"
    print(f"{state!s:>18} -> {answer}   {1e6 * (default_timer() - begun):,.0f} µs")
print(f"Without HTTP the same takes {1e3 * timeit(lambda: policy([5.0, 100.0, 2.4]), number=1000):,.0f} µs.")
server.shutdown()
