package drill

import "strings"

// with sets patches that the nodes of a drill are built with.
func (d Drill) with(patches ...string) Drill {
	d.patches = patches
	return d
}

// after makes a drill begin with nodes of the last release.
func (d Drill) after() Drill {
	d.old = true
	return d
}

// also makes a drill run also on clusters in which each node has a member of etcd.
func (d Drill) also() Drill {
	d.ownEtcd = true
	return d
}

// All returns the drills in order.
func All() []Drill {
	d := func(number int, name, promises string, rounds int, ci bool, run runFunc, what string) Drill {
		return Drill{Name: name, Number: number, Promises: strings.Fields(promises), What: what, Rounds: rounds, CI: ci, run: run}
	}
	return []Drill{
		d(1, "kill-primary", "D X A V", 10, true, killPrimary, "SIGKILL of the primary under load, again and again").also(),
		d(2, "handover", "D X A V", 10, false, handOver, "handover by order and by SIGTERM, again and again").also(),
		d(3, "stopped-primary", "F X A V", 3, true, stopPrimary, "SIGSTOP of the primary for 0.2 s, three failover times and three sessions, then SIGCONT").also(),
		d(4, "primary-without-etcd", "F D X A V", 8, true, partPrimaryFromEtcd, "the primary loses etcd, at once or by and by; clients still reach it"),
		d(5, "primary-without-clients", "D X A V", 2, false, partPrimaryFromClients, "the primary is cut off from clients and peers only"),
		d(6, "etcd-leader", "D X A V", 6, false, killEtcdLeader, "SIGKILL of the leader of three etcd members, SIGSTOP of a follower"),
		d(7, "etcd-outage", "D F X A V", 1, false, stopAllOfEtcd, "all of etcd is gone for 30 s"),
		d(8, "slow-etcd", "B D X A V", 1, false, slowEtcd, "answers of etcd take 2 s for a minute: the serve window is raised"),
		d(9, "lost-answer", "D X A V", 10, true, loseAnswer, "etcd applies a commit and its answer is lost"),
		d(10, "stopped-standby", "S", 2, false, stopStandby, "a standby is stopped for longer than the events live, with and without a compaction"),
		d(11, "cut-watch", "S", 2, false, cutStandby, "the watch of a standby is cut, with and without a compaction"),
		d(12, "busy-bootstrap", "S A", 1, true, bootstrap, "a standby joins while the primary takes 10,000 puts a second and evicts"),
		d(13, "twice-within-a-lease", "A L S", 3, false, twice, "two failovers within a lease, memory full and eviction running"),
		d(14, "wall-clocks", "D X A F V S", 3, false, shiftClocks, "wall clocks differ by two hours and step by ten minutes").with("shifted-clocks"),
		d(15, "remove-many", "X D", 2, false, removeMany, "the primary is killed in the middle of the removal of 1,000,000 objects"),
		d(16, "dead-host", "D A", 1, false, hostDies, "a host with 1,000,000 objects in its memory dies"),
		d(17, "lone-stall", "D X A V", 1, false, stallLone, "a lone master stalls for longer than its clients live without it"),
		d(18, "backlog", "D", 1, false, backlog, "a standby is promoted with 1,000,000 events to apply"),
		d(19, "five-in-a-minute", "D X A L V", 5, false, fiveInAMinute, "five failovers in a minute on three nodes, then all of them at once"),
		d(20, "garbage", "B", 1, false, garbage, "garbage on every port and in every record of etcd"),
		d(21, "wiped-etcd", "D X A L", 14, true, wipeEtcd, "etcd loses everything, or its head, under nodes that hold it all"),
		d(22, "restored-etcd", "D X A L", 9, false, restoreEtcd, "etcd comes back from a backup of a minute ago, with its revisions and above them"),
		d(23, "overwritten-keys", "F D X A L V", 15, false, overwriteKeys, "somebody writes over head and leader, or deletes them"),
		d(24, "silent-owner", "D X A L", 3, true, silentOwner, "owners of memory fall silent or take it back, and lend the same memory again"),
		d(25, "everything-killed", "D X A L S", 3, true, everythingDies, "SIGKILL of all nodes and etcd at once; all are started again").also(),
		d(26, "state-away", "D X A V", 2, false, stateAway, "the only complete standby is cut off etcd, the primary dies, and a master without state starts"),
		d(27, "late-copies", "A", 1, true, lateCopies, "copies on SSDs are reported when their sources have gone, and after a takeover"),
		d(28, "lost-packets", "F D X A V", 6, true, losePackets, "packets of the primary are lost without a reset: all, etcd's answers, or the journal's connection"),
		d(29, "stalling-etcd", "F D X A V", 1, false, stallEtcd, "etcd stalls at random for 0.3 to 3 s, again and again"),
		d(30, "upgrade", "D X A V S", 10, false, upgrade, "rolling restart of three nodes, from the last release to this one").after(),
		d(31, "hanging-primary", "D S", 1, false, hangPrimary, "the primary hangs, under a client whose Ping waits for 30 s"),
		d(32, "moves", "D S", 1, true, moves, "the primary is killed while objects are moved and memory is full"),
		d(33, "groups", "S", 1, false, groups, "the primary is killed while a member of a group is leased and memory is full"),
		d(34, "hostile-peers", "D X A V", 1, false, hostilePeers, "peers take all the processor and memory that the primary gives them"),
		d(35, "any-machine", "D X A V S", 20, false, killMachines, "SIGKILL of any one of three nodes that each run a member of etcd: of the primary, of etcd's leader, of any").also(),
		d(36, "kv-events", "S", 1, false, kvEvents, "the primary is killed while a follower of KV events keeps the keys, and memory is full"),
		d(37, "lone-restart", "D", 5, false, restartLone, "SIGKILL of a lone master with its own etcd and 1,000,000 objects; it is started again"),
		d(38, "rest", "B S", 1, false, rest, "a cluster without clients: how much it writes to etcd"),
		d(39, "witness", "D X A V S", 9, false, killBesideWitness, "SIGKILL of one of two nodes, with its member of etcd, or of the witness: of the primary, of etcd's leader, of any").also(),
	}
}
