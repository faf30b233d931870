// Package metrics shows what a node counts to Prometheus, and as one line to
// people. It keeps the names of Mooncake Store's master where that has the
// figure; our own begin with understudy_.
//
// Most values are read from the parts that count them when somebody asks, the
// rest are histograms that callers report to. A scrape does no I/O and holds no lock
// of the store for longer than a sum over segments takes; what only etcd knows
// is asked for by Run. The package must never decide anything, keep state that
// others rely on, or use a global registry: several nodes run in one process.
package metrics
