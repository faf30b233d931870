package deploy_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"go.yaml.in/yaml/v3"
)

const evaluateEvery = 15 * time.Second

// healthy are the series of a cluster in which nothing is wrong, in the notation of
// Prometheus' tests: 1x40 is 1, and 40 times more.
var healthy = map[string]string{
	`understudy_role{job="kv",instance="a",role="primary"}`: "1x40", `understudy_role{job="kv",instance="b",role="primary"}`: "0x40",
	`understudy_role{job="kv",instance="b",role="standby"}`: "1x40",
	`understudy_promotable{job="kv",instance="a"}`:          "1x40", `understudy_promotable{job="kv",instance="b"}`: "1x40",
	`understudy_journal_lost{job="kv",instance="a"}`: "0x40", `understudy_journal_founded{job="kv",instance="a"}`: "0x40",
	`understudy_started_empty{job="kv",instance="a"}`: "0x40", `understudy_awaited_nodes{job="kv",instance="a"}`: "0x40",
	`understudy_serve_lapses_total{job="kv",instance="a"}`: "0x40", `understudy_failover_raises_total{job="kv",instance="a"}`: "0x40",
	`understudy_state_restorable{job="kv",instance="a"}`: "1x40", `understudy_state_restorable{job="kv",instance="b"}`: "0x40",
	`understudy_state_save_failures_total{job="kv",instance="a"}`: "0x40", `understudy_state_file_age_seconds{job="kv",instance="a"}`: "20x40",
	`understudy_lag_seconds{job="kv",instance="b"}`: "0x40", `understudy_commit_age_seconds{job="kv",instance="b"}`: "1x40",
	`understudy_digest_mismatches_total{job="kv",instance="b"}`: "0x40", `understudy_lease_differences_total{job="kv",instance="b"}`: "0x40",
	`understudy_clients_held{job="kv",instance="a"}`: "0x40", `understudy_settings_differ{job="kv",instance="b"}`: "0x40",
	`understudy_certificate_expiry_timestamp_seconds{job="kv",instance="a",kind="node"}`: "1300000x40",
	`understudy_etcd_db_bytes{job="kv",instance="a"}`:                                    "79x40", `understudy_etcd_quota_bytes{job="kv",instance="a"}`: "100x40",
	`understudy_commits_refused_total{job="kv",instance="a",reason="no_space"}`: "0x40",
	`understudy_takeover_paused{job="kv",instance="a"}`:                         "0x40", `understudy_takeover_paused{job="kv",instance="b"}`: "0x40",
}

// What makes each alert fire, each alone: a series, and what it then is. A value with a
// gap (_) is of a node that is gone.
var firing = []struct{ alert, series, values string }{
	{"NoPrimary", `understudy_role{job="kv",instance="a",role="primary"}`, "1x5 0x35"},
	{"NoPrimary", `understudy_role{job="kv",instance="a",role="primary"}`, "1x5 _x35"},
	{"NoStandby", `understudy_promotable{job="kv",instance="b"}`, "1x5 0x35"},
	{"NoStandby", `understudy_promotable{job="kv",instance="b"}`, "1x5 _x35"},
	{"JournalLost", `understudy_journal_lost{job="kv",instance="a"}`, "0x5 1x35"},
	{"JournalLost", `understudy_journal_founded{job="kv",instance="a"}`, "0x5 1x35"},
	{"StartedEmpty", `understudy_started_empty{job="kv",instance="a"}`, "0x5 1x35"},
	{"WaitsForNodes", `understudy_awaited_nodes{job="kv",instance="a"}`, "0x5 2x35"},
	{"ServingInterrupted", `understudy_serve_lapses_total{job="kv",instance="a"}`, "0x5 1x35"},
	{"CommitsSlow", `understudy_failover_raises_total{job="kv",instance="a"}`, "0x5 1x35"},
	{"RestartLosesCache", `understudy_state_restorable{job="kv",instance="a"}`, "1x5 0x35"},
	{"StateNotSaved", `understudy_state_save_failures_total{job="kv",instance="a"}`, "0x5 1x35"},
	{"StateNotSaved", `understudy_state_file_age_seconds{job="kv",instance="a"}`, "880+15x40"},
	{"StandbyBehind", `understudy_lag_seconds{job="kv",instance="b"}`, "0x5 6x35"},
	{"StandbyBehind", `understudy_commit_age_seconds{job="kv",instance="b"}`, "1+15x40"},
	{"StateDiffers", `understudy_digest_mismatches_total{job="kv",instance="b"}`, "0x5 1x35"},
	{"StateDiffers", `understudy_lease_differences_total{job="kv",instance="b"}`, "0x5 1x35"},
	{"MassSilence", `understudy_clients_held{job="kv",instance="a"}`, "0x5 7x35"},
	{"EtcdNearQuota", `understudy_etcd_db_bytes{job="kv",instance="a"}`, "79x5 81x35"},
	{"EtcdNearQuota", `understudy_commits_refused_total{job="kv",instance="a",reason="no_space"}`, "0x5 3x35"},
	{"TakeoverPaused", `understudy_takeover_paused{job="kv",instance="b"}`, "0x5 1x35"},
	{"SettingsDiffer", `understudy_settings_differ{job="kv",instance="b"}`, "0x5 2x35"},
	{"CertificateExpires", `understudy_certificate_expiry_timestamp_seconds{job="kv",instance="a",kind="node"}`, "1209000x40"},
	{"CertificateExpires", `understudy_certificate_expiry_timestamp_seconds{job="kv",instance="a",kind="node"}`, "1300000x5 5x35"},
}

type alertRule struct {
	Alert, Expr string
	For         time.Duration
	Labels      map[string]string
	Annotations map[string]string
}

// fires returns what a rule says when it fires: once its expression has had a value for so
// long as it demands, for the same series. It is empty if that never is.
func (r *alertRule) fires(t *testing.T, engine *promql.Engine, db storage.Queryable) string {
	t.Helper()
	end := time.Unix(0, 0).Add(40 * evaluateEvery)
	query, err := engine.NewRangeQuery(t.Context(), db, nil, r.Expr, time.Unix(0, 0), end, evaluateEvery)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result, err := query.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range result {
		since := int64(-1)
		var before int64
		for _, p := range series.Floats {
			if since < 0 || p.T-before > evaluateEvery.Milliseconds() {
				since = p.T
			}
			if before = p.T; p.T-since >= r.For.Milliseconds() {
				return r.text(t, series.Metric.Map(), p.F)
			}
		}
	}
	return ""
}

// text expands the annotations as Prometheus does.
func (r *alertRule) text(t *testing.T, labels map[string]string, value float64) (all string) {
	t.Helper()
	const names = "{{$labels := .Labels}}{{$value := .Value}}"
	data := template.AlertTemplateData(labels, nil, "", promql.Sample{F: value})
	for _, name := range slices.Sorted(maps.Keys(r.Annotations)) {
		x := template.NewTemplateExpander(t.Context(), names+r.Annotations[name], r.Alert, data, model.Time(0),
			func(context.Context, string, time.Time) (promql.Vector, error) { return nil, nil }, &url.URL{}, nil)
		text, err := x.Expand()
		if err != nil {
			t.Errorf("%s: %s: got error %v, want a text", r.Alert, name, err)
		}
		all += text + "\n"
	}
	return all
}

func readAlerts(t *testing.T) (rules []alertRule) {
	t.Helper()
	text, err := os.ReadFile("prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

// Each alert fires on what it is for, and no other one does; none fires while all is well.
func TestAlertsFire(t *testing.T) {
	rules, engine := readAlerts(t), promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000)
	fired := make(map[string]bool)
	look := func(name, series, values string) {
		data := maps.Clone(healthy)
		if series != "" {
			if data[series] == "" {
				t.Fatalf("%s: got no %s of a healthy cluster, want it shown", name, series)
			}
			data[series] = values
		}
		var load strings.Builder
		fmt.Fprintf(&load, "load %v\n", evaluateEvery)
		for _, s := range slices.Sorted(maps.Keys(data)) {
			fmt.Fprintf(&load, "  %s %s\n", s, data[s])
		}
		db := promqltest.LoadedStorage(t, load.String())
		defer func() { _ = db.Close() }()
		for _, r := range rules {
			text := r.fires(t, engine, db)
			if want := r.Alert == "Understudy"+name; (text != "") != want {
				t.Errorf("%s %s: %s says %q; want it to fire: %v", series, values, r.Alert, text, want)
			} else if want {
				fired[r.Alert] = true
				if strings.Contains(text, "<no value>") || strings.Contains(text, "{{") {
					t.Errorf("%s: got the text %q, want each value filled in", r.Alert, text)
				}
			}
		}
	}
	look("", "", "")
	for _, f := range firing {
		look(f.alert, f.series, f.values)
	}
	for _, r := range rules {
		if !fired[r.Alert] {
			t.Errorf("%s: got it never fired, want it to fire on what it is for", r.Alert)
		}
	}
}
