"""A cluster that demands TLS and roles: an etcd, a master and a standby."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from typing import Any, Dict, List

import understudy
from tests.cluster import ROOT, lab

TOKEN = "t" * 32


def _masterctl() -> List[str]:
    """The program masterctl: $UNDERSTUDY_MASTERCTL, or built by go run."""
    built = os.environ.get("UNDERSTUDY_MASTERCTL")
    return [built] if built else ["go", "run", "./cmd/masterctl"]


class SecureCluster:
    def __init__(self) -> None:
        self._dir = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self._dir.name)
        self.client_id = str(uuid.uuid4())
        self._running: Dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        certs = self.dir / "certs"
        subprocess.run([*_masterctl(), "certs", "init", str(certs)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        self.ca = certs / "ca.crt"
        (self.dir / "tokens").write_text(f"client python {TOKEN} {self.client_id}\n")
        self._run("etcd", "__etcd", "--listen=127.0.0.1:0", f"--data-dir={self.dir}/etcd")
        etcd = self._ready("etcd")["etcd_endpoints"]
        flags = [
            f"--etcd_endpoints={','.join(etcd)}", "--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--refound-wait=100ms",
            f"--tls-ca={self.ca}", f"--tls-cert={certs}/node.crt", f"--tls-key={certs}/node.key",
            "--roles", f"--roles-tokens={self.dir}/tokens",
        ]  # fmt: skip
        self.addresses = []
        for name, role in (("master", ""), ("standby", "?role=standby")):
            self._run(name, f"__{name}", f"--node-id={name}", f"--state-dir={self.dir}/{name}", *flags)
            ready = self._ready(name)
            self.addresses.append(ready["rpc_address"])
            self._until(f"{name} is ready", f"https://{ready['http_address']}/readyz{role}")

    def other_authority(self) -> pathlib.Path:
        """A file with an authority that has signed nothing here."""
        certs = self.dir / "others"
        subprocess.run([*_masterctl(), "certs", "init", str(certs)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return certs / "ca.crt"

    def _run(self, name: str, *args: str) -> None:
        log = (self.dir / f"{name}.log").open("wb")
        with log:
            self._running[name] = subprocess.Popen(
                [*lab(), *args, f"--ready-file={self.dir}/{name}.json"], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def _ready(self, name: str) -> Dict[str, Any]:
        file = self.dir / f"{name}.json"
        deadline = time.monotonic() + 60
        while not file.exists():
            self._alive(name, deadline)
        ready: Dict[str, Any] = json.loads(file.read_text())
        return ready

    def _until(self, what: str, url: str) -> None:
        trust = ssl.create_default_context(cafile=str(self.ca))
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(url, context=trust, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                self._alive(what.split()[0], deadline)

    def _alive(self, name: str, deadline: float) -> None:
        if self._running[name].poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"{name} did not get ready:\n{(self.dir / f'{name}.log').read_text()}")
        time.sleep(0.05)

    def client(self, **more: Any) -> understudy.Client:
        return understudy.Client(self.addresses, **more)

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in reversed(list(self._running)):
            self.kill(name)
        self._dir.cleanup()
