// Package sim plays the core protocol (election, fencing, commit, follow,
// promote, hand over, demote) in virtual time: the real promote, journal,
// follower, metadata and service on the real clientv3, with an etcd in memory
// (internal/fakeetcd) and snapshots passed from node to node. All of it is in
// the package's tests.
//
// Stories are played from a script, and what happened is compared with a text
// in testdata. Seeds are random schedules of faults under a load, judged by
// what the callers saw.
//
//	go test ./internal/sim                             a few hundred seeds
//	go test ./internal/sim -run Seeds -sim.runs=5000   more
//	go test ./internal/sim -run Seeds -sim.seed=17 -v  one, with its transcript
//	go test ./internal/sim -run Stories -update        write the stories anew
//	go test -tags drills ./internal/sim -run Controls  each safeguard off: a seed must find it
//
// What a seed fixes: the schedule of faults, what each caller does and when it
// thinks, the latency of each request to etcd, and thereby the order in which
// requests take effect. What it does not fix: the order of goroutines that run
// at one instant of virtual time, and the jitter with which journal and
// follower space their retries, which comes from math/rand/v2. So most seeds do
// the same again for every caller and node, and some do not (TestReplay).
//
// It must never import a real network, a real etcd or a real clock.
package sim
