// Package metrics exports the figures of a node to Prometheus, and as one line for
// people. It keeps the names of Mooncake Store's master where that has the figure;
// our own begin with understudy_.
//
// Most values are read at a scrape from the parts that count them. The others are
// histograms to which those parts report. A scrape does no I/O, and holds no lock of
// the store for longer than a sum over segments takes; Run asks etcd for what only
// etcd knows. The package must never decide anything, keep state that others rely
// on, or use a global registry: several nodes run in one process.
package metrics
