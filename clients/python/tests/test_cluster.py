"""The client against a real cluster, whose primary is killed and paused."""

from __future__ import annotations

import itertools
import signal
import threading
import time
import unittest
from typing import Callable, List

import understudy
from understudy import errors
from tests.cluster import Cluster

MIB = 1 << 20


ports = itertools.count(1)


def memory(name: str = "host-1") -> understudy.Segment:
    """Memory that no other segment has."""
    return understudy.Segment(name=name, base=1 << 32, size=64 * MIB, endpoint=f"{name}:{next(ports)}")


def until(what: str, so: Callable[[], bool]) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + 30
    while not so():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after 30 s: {what}")
        time.sleep(0.02)


class Calls(unittest.TestCase):
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(1, "--client-ttl=4s")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.cluster.stop()

    def setUp(self) -> None:
        self.client = self.cluster.client(ping_interval=0.2)
        self.addCleanup(self.client.close)
        self.segment = memory()
        self.client.mount_segment(self.segment)
        self.addCleanup(self.client.unmount_segment, self.segment.id)

    def test_an_object_from_its_put_to_its_removal(self) -> None:
        put = self.client.put_start("one", MIB)
        self.assertEqual((put.key, put.size, len(put.replicas)), ("one", MIB, 1))
        self.assertEqual((put.replicas[0].kind, put.replicas[0].segment), (understudy.ReplicaKind.MEMORY, "host-1"))
        self.assertFalse(self.client.exists("one"))
        with self.assertRaises(errors.ReplicaNotReady):
            self.client.get("one")
        self.client.put_end(put, checksum=7)
        found = self.client.get("one")
        self.assertEqual((found.id, found.size, found.checksum), (put.id, MIB, 7))
        self.assertTrue(found.lease.valid())
        self.assertGreaterEqual(self.client.renew(found).ends, found.lease.ends)
        with self.assertRaises(errors.ObjectHasLease) as leased:
            self.client.remove("one")
        self.assertTrue(leased.exception.retryable)
        self.client.remove("one", force=True)
        with self.assertRaises(errors.ObjectNotFound):
            self.client.renew(found)

    def test_errors_have_their_kinds(self) -> None:
        with self.assertRaises(errors.ObjectNotFound) as missing:
            self.client.get("nothing")
        self.assertEqual((missing.exception.name, missing.exception.number), ("OBJECT_NOT_FOUND", -704))
        with self.assertRaises(errors.NoAvailableHandle):
            self.client.put_start("huge", 1 << 40)
        put = self.client.put_start("taken", MIB)
        with self.assertRaises(errors.ObjectExists):
            self.client.put_start("taken", MIB)
        with self.cluster.client() as stranger, self.assertRaises(errors.IllegalClient):
            stranger.put_end(put)
        self.client.put_revoke(put)
        with self.assertRaises(errors.ObjectNotFound):
            self.client.put_end(put)
        with self.assertRaises(errors.InvalidParams):
            self.client.remove_by_regex("(?=lookahead)")
        with understudy.Client(self.cluster.addresses, cluster_id="other") as wrong:
            with self.assertRaises(errors.InvalidParams) as other:
                wrong.get("nothing")
        self.assertIn("belongs to cluster 'lab'", str(other.exception))

    def test_batches(self) -> None:
        keys = [f"batch-{i}" for i in range(5)]
        self.client.put_start(keys[2], MIB)
        puts = self.client.batch_put_start([understudy.PutItem(k, MIB) for k in keys])
        self.assertIsInstance(puts[2], errors.ObjectExists)
        good = [p for p in puts if isinstance(p, understudy.Reservation)]
        self.assertEqual([p.key for p in good], [keys[i] for i in (0, 1, 3, 4)])
        self.assertEqual(self.client.batch_put_end(good[:3]), [None, None, None])
        self.assertEqual(self.client.batch_put_revoke(good[3:]), [None])
        self.assertEqual(self.client.batch_exists(keys), [True, True, False, True, False])
        found = self.client.batch_get(keys)
        self.assertIsInstance(found[0], understudy.Object)
        self.assertIsInstance(found[2], errors.ReplicaNotReady)
        self.assertIsInstance(found[4], errors.ObjectNotFound)
        removed = self.client.batch_remove([keys[0], keys[4]], force=True)
        self.assertIsNone(removed[0])
        self.assertIsInstance(removed[1], errors.ObjectNotFound)
        self.assertEqual(self.client.remove_by_regex("^batch-[0-9]$", force=True), 2)

    def test_segments_are_mounted_again_when_the_server_forgot_them(self) -> None:
        with self.cluster.client(ping_interval=9.0) as late:  # a ping long after the TTL of 4 s
            mine = memory("late")
            late.mount_segment(mine)

            def mounted() -> bool:
                try:
                    put = self.client.put_start("somewhere", 1024, understudy.PutConfig(preferred_segments=["late"]))
                except errors.NoAvailableHandle:  # the pings of the other segment are late, too
                    return False
                try:
                    self.client.put_revoke(put)
                except errors.ObjectNotFound:  # the segment has just gone, and the put with it
                    return False
                return put.replicas[0].segment == "late"

            self.assertTrue(mounted())
            until("the segment is forgotten", lambda: not mounted())
            until("it is mounted again", mounted)
            late.unmount_segment(mine.id)
            self.assertFalse(mounted())


class Failovers(unittest.TestCase):
    def test_calls_go_on_when_the_primary_is_killed_and_when_it_hangs(self) -> None:
        cluster = Cluster(2)
        self.addCleanup(cluster.stop)
        with cluster.client() as client:
            client.mount_segment(memory())
            first = client.leader()
            self.assertEqual(first.node_id, "master")
            cluster_load = Load(cluster)
            with cluster_load:
                cluster_load.puts_more()
                cluster.signal("master", signal.SIGKILL)
                cluster_load.puts_more()
                second = client.leader()
                self.assertGreater(second.term, first.term)
                cluster.signal(second.node_id, signal.SIGSTOP)
                cluster_load.puts_more()
                third = client.leader()
                self.assertGreater(third.term, second.term)
                cluster.signal(second.node_id, signal.SIGCONT)
            self.assertEqual(cluster_load.failed, [])
            self.assertEqual(set(client.batch_exists(cluster_load.done)), {True})


class Keys(unittest.TestCase):
    def test_keys_are_followed_when_the_primary_hangs_and_when_it_is_killed(self) -> None:
        cluster = Cluster(2, "--enable_kv_events")
        self.addCleanup(cluster.stop)
        with cluster.client() as client, cluster.client() as follower:
            client.mount_segment(memory())
            follow = follower.key_events()
            resyncs = 0
            known: set[str] = set()
            after = understudy.KeyPosition()

            def until_known(key: str) -> None:
                nonlocal resyncs, after
                deadline = time.monotonic() + 30
                while key not in known or after == understudy.KeyPosition():
                    self.assertLess(time.monotonic(), deadline, f"{key} and a position have not come in 30 s")
                    update = next(follow)
                    resyncs, after = resyncs + update.resync, update.after
                    known.update(e.key for e in update.events if e.type is understudy.KeyEventType.STORED and e.in_memory)

            def put(key: str) -> None:
                client.put_end(client.put_start(key, 1024))
                until_known(key)

            put("one")
            begun, seen = after, set(known)
            cluster.signal("master", signal.SIGSTOP)
            put("two")
            cluster.signal("master", signal.SIGKILL)
            cluster.signal(client.leader().node_id, signal.SIGKILL)
            put("three")
            self.assertEqual((resyncs, known), (1, {"one", "two", "three"}))
            for update in follower.key_events(begun):  # as after a restart of the follower
                self.assertFalse(update.resync)
                seen.update(e.key for e in update.events)
                if seen == known:
                    break
            self.assertTrue(next(follower.key_events(understudy.KeyPosition("another", 1, 1))).resync)
            follower.close()
            with self.assertRaises(errors.Unavailable):
                while True:
                    next(follow)


class Load:
    """Threads that put objects until the end of a with statement."""

    def __init__(self, cluster: Cluster) -> None:
        self.done: List[str] = []
        self.failed: List[Exception] = []
        self._cluster = cluster
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(4)]

    def _run(self, worker: int) -> None:
        with self._cluster.client() as client:
            n = 0
            while not self._ended.is_set():
                key, n = f"{worker}/{n}", n + 1
                try:
                    client.put_end(client.put_start(key, 1024))
                    self.done.append(key)
                except Exception as error:
                    self.failed.append(error)
                self._ended.wait(0.005)

    def puts_more(self) -> None:
        """Waits until 50 more objects are put."""
        goal = len(self.done) + 50
        until("50 more objects are put", lambda: len(self.done) >= goal or bool(self.failed))

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
