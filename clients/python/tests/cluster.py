"""A real cluster for tests: etcd, a master and standbys, as lab cluster starts them."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
from typing import Any, Dict, List

import understudy

ROOT = pathlib.Path(__file__).resolve().parents[3]


def lab() -> List[str]:
    """The program lab: $UNDERSTUDY_LAB, or built by go run."""
    built = os.environ.get("UNDERSTUDY_LAB")
    return [built] if built else ["go", "run", "./cmd/lab"]


class Cluster:
    def __init__(self, standbys: int, *flags: str) -> None:
        """Starts a cluster with an etcd of one member, and waits until all standbys could take over."""
        command = [*lab(), "cluster", "-o", "json", "--etcd-members=1", "--prometheus=false", f"--standbys={standbys}"]
        self._process = subprocess.Popen(
            [*command, "--", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        text = ""
        for line in self._process.stdout:
            text += line
            if line == "}\n":
                break
        printed: Dict[str, Any] = json.loads(text)
        self.id: str = printed["cluster_id"]
        self.addresses: List[str] = [n["rpc"] for n in printed["nodes"]]
        self._pids: Dict[str, int] = {n["name"]: n["pid"] for n in printed["nodes"]}

    def client(self, **more: Any) -> understudy.Client:
        return understudy.Client(self.addresses, cluster_id=self.id, **more)

    def signal(self, node: str, what: signal.Signals) -> None:
        os.kill(self._pids[node], what)

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)  # go run passes nothing on
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(timeout=30)
