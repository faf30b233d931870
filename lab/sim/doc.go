// Package sim plays the core protocol (election, fencing, commit, follow,
// promote, hand over, demote) in virtual time: the real promote, journal,
// follower, metadata and service on the real clientv3 and the real etcd server,
// with snapshots passed from node to node. All of it is in the
// package's tests.
//
// A story is a fixed course of events, and its transcript is compared with a text
// in testdata. Seeds are random schedules of faults under a load, judged by
// what the callers saw.
//
//	go test ./lab/sim                             some seeds
//	go test ./lab/sim -run Seeds -sim.runs=5000   more
//	go test ./lab/sim -run Seeds -sim.seed=17 -v  one, with its transcript
//	go test ./lab/sim -run Replay -sim.replays=99 each twice
//	go test ./lab/sim -run Stories -update        write the stories anew
//	go test ./lab/sim -run Controls -sim.controls=all  each safeguard missing: a seed must find it
//
// A seed always plays the same, to the nanosecond, on any number of CPUs (TestReplay),
// because no two events that affect each other happen at the same instant of virtual
// time. Each message to and from etcd has a latency of its own, by seed and sender. A
// generator of the world spreads retries. Callers that are woken together go on one
// after another. The writer pauses after each commit, so that a caller that goes on at
// once is in the next one.
//
// It must never use a real network or a real clock.
package sim
