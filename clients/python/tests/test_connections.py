"""Connections that lose their other end."""

from __future__ import annotations

import socket
import threading
import time
import unittest
import uuid
from typing import Callable, List, Tuple
from unittest import mock

import understudy
from tests.test_repeats import Node
from understudy import _access, _finder, _mounts, errors


class Router:
    """Passes connections on to an address, until it forgets those that there are."""

    def __init__(self, test: unittest.TestCase, to: str) -> None:
        self.turn(to)
        self._lock = threading.Lock()  # guards what follows
        self._epoch = 0
        self._sockets: List[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        test.addCleanup(self._close)

    def turn(self, to: str) -> None:
        """Passes new connections on to another address."""
        host, _, port = to.rpartition(":")
        self._to = (host, int(port))

    def forget(self) -> None:
        """Loses what goes either way from now on, without a word."""
        with self._lock:
            self._epoch += 1

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._to)
            except OSError:
                return
            with self._lock:
                self._sockets += [near, far]
                epoch = self._epoch
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(pair, epoch), daemon=True).start()

    def _copy(self, pair: Tuple[socket.socket, socket.socket], epoch: int) -> None:
        source, to = pair
        try:
            while True:
                data = source.recv(1 << 16)
                with self._lock:
                    forgotten = epoch != self._epoch
                if not data and not forgotten:
                    to.shutdown(socket.SHUT_WR)
                if not data:
                    return
                if not forgotten:
                    to.sendall(data)
        except OSError:
            return

    def _close(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, []
        self._listener.close()
        for s in sockets:
            s.close()


class Connections(unittest.TestCase):
    def test_a_forgotten_connection_is_replaced_before_the_server_forgets_the_client(self) -> None:
        node = Node(self, "a")
        router = Router(self, node.address)
        client = understudy.Client([router.address], cluster_id="c")
        self.addCleanup(client.close)
        client.leader()
        router.forget()
        node.script = [node.reserve]
        begun = time.monotonic()
        self.assertEqual(client.put_start("k", 1).id, 5)
        self.assertLess(time.monotonic() - begun, 9)

    def test_a_connection_to_a_former_primary_is_replaced(self) -> None:
        self.addCleanup(setattr, _finder, "OUTDATED", _finder.OUTDATED)
        _finder.OUTDATED = 0.5
        former, successor = Node(self, "a"), Node(self, "b")
        balancer = Router(self, former.address)
        client = understudy.Client([balancer.address], cluster_id="c")
        self.addCleanup(client.close)
        client.leader()
        balancer.turn(successor.address)
        former.leads, former.leader, successor.term = False, "127.0.0.1:1", 2
        self.assertEqual(client.leader(timeout=10).node_id, "b")


    def test_clients_do_not_replace_connections_in_step(self) -> None:
        replaced = set()
        for _ in range(20):
            at = 3600.0
            finder = _finder.Finder(["127.0.0.1:1"], "c", _access.Access(), 1 << 20)
            node = finder._nodes[0]
            while finder._nodes[0] is node and at < 3660:
                with mock.patch("understudy._finder.now", return_value=at):
                    finder._replace_outdated()
                at += 0.1
            finder.close()
            replaced.add(round(at - 3600, 1))
        self.assertTrue(all(2 <= after <= 4.3 for after in replaced), replaced)
        self.assertGreater(len(replaced), 3)


class Mounts(unittest.TestCase):
    def test_pings_go_on_after_a_defect(self) -> None:
        goes_on = threading.Event()
        asked: List[bool] = []

        def keep(again: bool) -> None:
            asked.append(again)
            if len(asked) == 1:
                raise ValueError("a defect")
            goes_on.set()

        mounts = _mounts.Mounts(keep, 0.01)
        self.addCleanup(mounts.close)
        with self.assertLogs("understudy", "WARNING"):
            mounts.add(understudy.Segment(id=str(uuid.uuid4()), name="h", base=1 << 32, size=1 << 20, endpoint="h:1"))
            self.assertTrue(goes_on.wait(20))
        self.assertEqual(asked[:2], [False, True])

    def test_a_mount_waits_for_other_mounts_no_longer_than_its_timeout(self) -> None:
        nobody = socket.create_server(("127.0.0.1", 0))  # takes calls, and answers none
        self.addCleanup(nobody.close)
        client = understudy.Client([f"127.0.0.1:{nobody.getsockname()[1]}"], timeout=8.0)
        self.addCleanup(client.close)
        segment = understudy.Segment(id=str(uuid.uuid4()), name="h", base=1 << 32, size=1 << 20, endpoint="h:1")

        def mount() -> None:
            with self.assertRaises(errors.Error):
                client.mount_segment(segment)

        other = threading.Thread(target=mount)
        other.start()
        self.addCleanup(other.join)
        while not client._mounts._busy.locked():
            time.sleep(0.01)
        calls: List[Callable[[], None]] = [
            lambda: client.mount_segment(segment, timeout=0.2),
            lambda: client.unmount_segment(segment.id, timeout=0.2),
            lambda: client.remount_segments(timeout=0.2),
        ]
        for call in calls:
            begun = time.monotonic()
            with self.assertRaises(errors.Unavailable):
                call()
            self.assertLess(time.monotonic() - begun, 2)

    def test_an_unmount_without_its_turn_ends_the_remounts(self) -> None:
        client = understudy.Client(["127.0.0.1:1"])
        self.addCleanup(client.close)
        segment = understudy.Segment(id=str(uuid.uuid4()), name="h", base=1 << 32, size=1 << 20, endpoint="h:1")
        client._mounts.add(segment)
        with client._mounts.alone("a remount", 1):
            with self.assertRaisesRegex(errors.Unavailable, "repeat the unmount"):
                client.unmount_segment(segment.id, timeout=0.1)
        self.assertEqual(client._mounts.all(), [])
