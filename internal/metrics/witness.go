package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Witness answers scrapes of a node that runs a member of etcd and holds no metadata, with
// those figures of a node that it has. size must not block; it returns the size of etcd's
// database and its quota, in bytes.
// certificates returns when each of its certificates expires, by kind; those are shown that it has
// at the time of this call.
func Witness(version string, size func() (used, quota uint64), certificates func() map[string]time.Time) http.Handler {
	registry := prometheus.NewRegistry()
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	one := func() float64 { return 1 }
	gauge("understudy_role", "1 for the role that this node has.", prometheus.Labels{"role": "witness"}, one)
	gauge("understudy_build_info", "1, with the version of this program.", prometheus.Labels{"version": version}, one)
	gauge("understudy_etcd_db_bytes", "Size of etcd's database.", nil, func() float64 { used, _ := size(); return float64(used) })
	gauge("understudy_etcd_quota_bytes", "Size of etcd's database at which it refuses writes.", nil, func() float64 { _, quota := size(); return float64(quota) })
	for kind := range certificates() {
		gauge(certificateName, certificateHelp, prometheus.Labels{"kind": kind}, func() float64 { return float64(certificates()[kind].Unix()) })
	}
	registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectorFigures())),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}
