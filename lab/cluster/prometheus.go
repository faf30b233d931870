package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Prometheus is a Prometheus server that scrapes the nodes of a cluster.
type Prometheus struct {
	URL string

	cmd   *exec.Cmd
	ended chan struct{}
}

// prometheusStop is how long a Prometheus may take to write what it has in memory.
const prometheusStop = 10 * time.Second

// StartPrometheus runs an executable of Prometheus until it is stopped, and returns
// when it serves. It scrapes every second; the job is the cluster's id, as the
// dashboard and the alerts want it. alerts is a file of rules; empty for none.
func (c *Cluster) StartPrometheus(ctx context.Context, exe, alerts string) (p *Prometheus, err error) {
	home := filepath.Join(c.Dir, "prometheus")
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
	log, err := os.Create(filepath.Join(home, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	err = onFreePort(ctx, func(address string) error {
		p = &Prometheus{URL: "http://" + address, ended: make(chan struct{})}
		p.cmd = exec.Command(exe, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(home, "data"), "--web.listen-address="+address)
		p.cmd.Stdout, p.cmd.Stderr = log, log
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent, which stops it in order
		if err := p.cmd.Start(); err != nil {
			return err
		}
		go func() {
			defer close(p.ended)
			_ = p.cmd.Wait()
		}()
		return p.await(ctx, log.Name())
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

// await waits until it serves. One that does not is killed.
func (p *Prometheus) await(ctx context.Context, log string) error {
	err := Poll(ctx, startTimeout, "Prometheus is ready", func(ctx context.Context) (bool, error) {
		select {
		case <-p.ended:
			return false, fmt.Errorf("it ended; see %s", log)
		default:
		}
		return p.ready(ctx), nil
	})
	if err != nil {
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("starting Prometheus: %w", err)
	}
	return nil
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
func (p *Prometheus) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(prometheusStop):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}
