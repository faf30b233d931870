// Package cluster runs clusters on this machine as child processes of one
// program, which starts itself again as its own child: etcd members and nodes,
// with a TCP proxy on each way between two of them if a drill needs one. It
// waits until they are ready, asks them how they are, signals them and ends
// them. Data and logs go to a folder. No child outlives the program.
//
// The demo, the drills, the benchmarks and tests are built on it. It decides and
// judges nothing, and must never be part of a production setup.
package cluster
