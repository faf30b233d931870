package docs_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/metrics"
)

// verdicts are what mooncake.md says of what Mooncake's master has.
var verdicts = []string{"same", "better", "other", "not there"}

// ofMooncake returns the names that a file of another package lists, one a line.
func ofMooncake(file string, name *regexp.Regexp) (list []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		if m := name.FindStringSubmatch(line); m != nil {
			list = append(list, m[1])
		}
	}
	return list
}

// Each call of Mooncake's master stands once in the table of calls, each path of its
// admin port in that of paths, with a verdict.
func TestEveryCallAndPathHasAVerdict(t *testing.T) {
	calls := ofMooncake("../internal/mooncake/testdata/wire/mooncake-head.txt", regexp.MustCompile(`^F\t(\w+)\t`))
	if len(calls) != 64 {
		t.Fatalf("got %d calls of Mooncake's master, want 64", len(calls))
	}
	paths := []string{
		"/metrics", "/metrics/summary", "/health", "/role", "/ha_status", "/kv_events/status", "/leader", "/query_key", "/get_all_keys", "/get_all_segments",
		"/get_segments_detail", "/query_segment", "/api/v1/drain_jobs", "/api/v1/drain_jobs/query", "/api/v1/drain_jobs/cancel", "/api/v1/segments/status",
		"/api/v1/tenant_quotas", "/batch_query_keys", "/api/v1/remove_all", "/metadata",
	}
	text := read(t, "mooncake.md")
	for head, want := range map[string][]string{"| calls | | |\n|---|---|---|\n": calls, "| path | | |\n|---|---|---|\n": paths} {
		_, table, found := strings.Cut(text, head)
		if !found {
			t.Fatalf("mooncake.md: got no table %q, want one", head)
		}
		seen := make(map[string]int)
		for line := range strings.Lines(table) {
			cells := strings.Split(line, " | ")
			if len(cells) < 3 {
				break // the table ends
			}
			if verdict := strings.TrimSpace(cells[1]); !slices.Contains(verdicts, verdict) {
				t.Errorf("%s: got the verdict %q, want one of %q", cells[0], verdict, verdicts)
			}
			for _, name := range regexp.MustCompile(`[\w/]+`).FindAllString(cells[0], -1) {
				seen[name]++
			}
		}
		for _, name := range want {
			if seen[name] != 1 {
				t.Errorf("%s stands %d times in a table of mooncake.md, want once", name, seen[name])
			}
		}
	}
}

// betterFlags are those of Mooncake's whose effect goes further here.
var betterFlags = map[string]string{
	"enable_ha":                       "standbys have the whole state",
	"etcd_endpoints":                  "none: the node brings an etcd of its own",
	"client_ttl":                      "only time counts in which the client could be heard",
	"enable_multi_tenants":            "quotas survive a failover",
	"enable_kv_events":                "events go on over a failover",
	"enable_http_metadata_server":     "its keys survive a failover",
	"dynamic_replication_mode":        "copies go on at the next primary, and with older clients",
	"promotion_on_hit":                "a promotion survives a failover",
	"allow_evict_soft_pinned_objects": "the order is exact, and the same on all nodes",
}

// flagsTable says of each flag of Mooncake's master where it stands.
func flagsTable() string {
	unused := make(map[string]bool)
	for _, u := range config.Unused() {
		unused[u.Names] = true
	}
	by := make(map[string][]string)
	for _, name := range ofMooncake("../internal/config/testdata/mooncake_flags.txt", regexp.MustCompile(`^\w+ (\w+)=`)) {
		verdict, text := "same", "`--"+name+"`"
		if why, ok := betterFlags[name]; ok {
			verdict, text = "better", text+" ("+why+")"
		} else if unused[name] {
			verdict = "not there"
		}
		by[verdict] = append(by[verdict], text)
	}
	var b strings.Builder
	b.WriteString("| | | flags |\n|---|---|---|\n")
	for _, verdict := range verdicts {
		if list := by[verdict]; verdict == "not there" {
			fmt.Fprintf(&b, "| %s | %d | those of the table below; they are accepted |\n", verdict, len(list))
		} else if len(list) > 0 {
			fmt.Fprintf(&b, "| %s | %d | %s |\n", verdict, len(list), strings.Join(list, ", "))
		}
	}
	return b.String()
}

// mooncakeMetricsTable says of each metric of Mooncake's lists where it stands.
func mooncakeMetricsTable() string {
	shown := make(map[string]bool)
	for _, f := range metrics.Families() {
		shown[f.Name] = true
	}
	var same []string
	missing := 0
	for _, file := range []string{"testdata/mooncake_dashboard.txt", "testdata/mooncake_ha.txt"} {
		for _, name := range ofMooncake(file, regexp.MustCompile(`^(\w+)`)) {
			if name = "`" + strings.TrimSuffix(name, "_bucket") + "`"; slices.Contains(same, name) {
				continue
			}
			if shown[strings.Trim(name, "`")] {
				same = append(same, name)
			} else {
				missing++
			}
		}
	}
	return fmt.Sprintf("| | | metrics |\n|---|---|---|\n| same | %d | %s |\n| not there | %d | those of the table below |\n", len(same), strings.Join(same, ", "), missing)
}
