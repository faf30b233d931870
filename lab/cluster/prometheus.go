package cluster

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Prometheus is a Prometheus server that scrapes the nodes of a cluster.
type Prometheus struct {
	URL     string
	process *Process
}

// prometheusStop is how long a Prometheus may take to write what it has in memory.
const prometheusStop = 10 * time.Second

// StartPrometheus runs an executable of Prometheus until it is stopped, and returns
// when it serves. It scrapes every second; the job is the cluster's id, as the
// dashboard and the alerts want it. alerts is a file of rules; empty for none.
func (c *Cluster) StartPrometheus(ctx context.Context, exe, alerts string) (p *Prometheus, err error) {
	const name = "prometheus"
	home := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	config, err := yaml.Marshal(c.scrapeConfig(alerts))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(home, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o644); err != nil {
		return nil, err
	}
	err = onFreePort(ctx, func(address string) (err error) {
		p = &Prometheus{URL: "http://" + address}
		args := []string{"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(home, "data"), "--web.listen-address=" + address}
		p.process, err = launch(ctx, exe, c.Dir, name, args, p.ready)
		return err
	})
	return p, err
}

func (c *Cluster) scrapeConfig(alerts string) map[string]any {
	var targets []string
	for _, n := range c.Nodes {
		targets = append(targets, n.HTTP)
	}
	config := map[string]any{
		"global":         map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"scrape_configs": []any{map[string]any{"job_name": c.ID, "static_configs": []any{map[string]any{"targets": targets}}}},
	}
	if alerts != "" {
		config["rule_files"] = []string{alerts}
	}
	return config
}

func (p *Prometheus) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/-/ready", strings.NewReader(""))
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Stop ends it in order, or at once if that takes too long.
func (p *Prometheus) Stop() { _ = p.process.Stop(prometheusStop) }
