package deploy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// scrapeEvery is how often nodes are scraped, and how fine queries look.
	scrapeEvery = 500 * time.Millisecond
	// lookBack is how old a sample may be to count as the newest.
	lookBack = time.Minute
	// sampleJob is the job of our sample configuration.
	sampleJob = "understudy"
)

// A prometheus scrapes nodes, and answers queries.
type prometheus interface {
	// answers reports whether a query has had a number at some time since it began to
	// scrape, as a panel of Grafana would show it.
	answers(expr string) (bool, error)
}

// startPrometheus scrapes nodes until the test ends: with the program prometheus, or with its
// storage and engine in this process if that is not installed.
func startPrometheus(t *testing.T, nodes []string) prometheus {
	t.Helper()
	exe, err := exec.LookPath("prometheus")
	if err != nil {
		t.Log("no prometheus (apt-get install prometheus): its storage and engine answer in this process")
		return startInProcess(t, nodes)
	}
	return startServer(t, exe, nodes)
}

// A server is the program prometheus.
type server struct {
	url   string
	began time.Time
}

// listensAt is how its log says which port it has.
var listensAt = regexp.MustCompile(`msg="Listening on".* address=(127\.0\.0\.1:[1-9]\d*)`)

// startServer runs Prometheus with our sample configuration and alerts. The targets are other
// ones, and it scrapes more often.
func startServer(t *testing.T, exe string, nodes []string) *server {
	t.Helper()
	home := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(home, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("alerts.yml", readFile(t, "prometheus/alerts.yml"))
	config := write("prometheus.yml", sampleFor(t, nodes))
	log, err := os.Create(filepath.Join(home, "log"))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{began: time.Now()}
	cmd := exec.Command(exe, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(home, "data"), "--web.listen-address=127.0.0.1:0", "--query.lookback-delta="+lookBack.String())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("prometheus: got exit %v, want 0", err)
		}
		_ = log.Close()
	})
	for deadline := time.Now().Add(time.Minute); !s.ready(); time.Sleep(50 * time.Millisecond) {
		said := readFile(t, log.Name())
		if at := listensAt.FindStringSubmatch(said); at != nil {
			s.url = "http://" + at[1]
		}
		if time.Now().After(deadline) || strings.Contains(strings.ToLower(said), "level=error") {
			t.Fatalf("prometheus: got\n%s\nwant it to serve within a minute", said)
		}
	}
	return s
}

// sampleFor returns our sample configuration with other targets and shorter intervals.
func sampleFor(t *testing.T, nodes []string) string {
	t.Helper()
	var sample struct {
		Global        map[string]any
		RuleFiles     []string         `yaml:"rule_files"`
		ScrapeConfigs []map[string]any `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "prometheus/prometheus.yml")), &sample); err != nil {
		t.Fatal(err)
	}
	if len(sample.ScrapeConfigs) != 1 || sample.ScrapeConfigs[0]["job_name"] != sampleJob {
		t.Fatalf("the sample scrapes %v, want one job %s", sample.ScrapeConfigs, sampleJob)
	}
	for name := range sample.Global {
		sample.Global[name] = scrapeEvery.String()
	}
	sample.ScrapeConfigs[0]["static_configs"] = []any{map[string]any{"targets": nodes}}
	text, err := yaml.Marshal(sample)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ready reports whether it serves.
func (s *server) ready() bool {
	if s.url == "" {
		return false
	}
	resp, err := http.Get(s.url + "/-/ready") //nolint:noctx // of this machine
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (s *server) answers(expr string) (bool, error) {
	seconds := func(at time.Time) string { return fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000) }
	var answer struct {
		Error string
		Data  struct {
			ResultType string
			Result     []struct{ Values [][2]any } // pairs of a time and a number as text
		}
	}
	resp, err := http.PostForm(s.url+"/api/v1/query_range", url.Values{ //nolint:noctx // of this machine
		"query": {expr}, "start": {seconds(s.began)}, "end": {seconds(time.Now())}, "step": {scrapeEvery.String()},
	})
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return false, err
	}
	if resp.StatusCode != http.StatusOK || answer.Data.ResultType != "matrix" {
		return false, fmt.Errorf("prometheus: got %s: %s, want 200 and a matrix", resp.Status, answer.Error)
	}
	for _, series := range answer.Data.Result {
		for _, point := range series.Values {
			if point[1] != "NaN" {
				return true, nil
			}
		}
	}
	return false, nil
}
