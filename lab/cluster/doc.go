// Package cluster runs clusters on this machine. Etcd members and nodes are child
// processes of one program, which starts its own executable again. If a drill needs it,
// there is a TCP proxy between each two of them. The package waits until the processes
// are ready, reads their status, signals them and ends them. Data and logs go to a
// folder. No child outlives the program.
//
// The demo, the drills, the benchmarks and tests are built on it. It decides and
// judges nothing, and must never be part of a production setup.
package cluster
