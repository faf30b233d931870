// Package docs_test keeps the parts of the documentation that are made from the
// program in step with it. To write them anew:
//
//	go test ./docs -update
package docs_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/metrics"
	"github.com/understudy-store/understudy/internal/service"
)

var update = flag.Bool("update", false, "write the generated parts of the documentation anew")

const manual = "operations.md"

// generated are the parts of the manual that are made from the program, by the
// name that their markers have.
func generated() map[string]string {
	return map[string]string{
		"settings":             settingsTable(),
		"unused settings":      unusedSettingsTable(),
		"metrics":              metricTables(),
		"metrics of each call": eachCallTable(),
	}
}

func TestManualIsInStep(t *testing.T) {
	file, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	for name, want := range generated() {
		before, rest, opens := strings.Cut(text, begin(name))
		got, after, closes := strings.Cut(rest, end(name))
		switch {
		case !opens || !closes:
			t.Errorf("%s has no part between %q and %q", manual, begin(name), end(name))
		case *update:
			text = before + begin(name) + "\n\n" + want + "\n" + end(name) + after
		case got != "\n\n"+want+"\n":
			t.Errorf("the part %q of %s is not what the program says: go test ./docs -update", name, manual)
		}
	}
	if text != string(file) {
		if err := os.WriteFile(manual, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func begin(name string) string { return "<!-- generated: " + name + " -->" }
func end(name string) string   { return "<!-- end of " + name + " -->" }

// The manual names metrics and settings in its own words, too.
func TestManualNamesWhatThereIs(t *testing.T) {
	file, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range words(string(file), "understudy_") {
		if name != "understudy_" && !slices.ContainsFunc(metrics.Families(), func(f metrics.Family) bool { return f.Name == name }) {
			t.Errorf("%s names %s, which is no metric", manual, name)
		}
	}
	known := settingsTable() + unusedSettingsTable()
	ours := []string{"--print-config", "--config_path", "--yes", "--to", "--follow", "--output", "--address"} // of commands
	theirs := []string{"--auto-compaction-mode", "--auto-compaction-retention", "--quota-backend-bytes"}      // of etcd
	for _, name := range words(string(file), "--") {
		if !strings.Contains(known, "`"+name+"`") && !slices.Contains(slices.Concat(ours, theirs), name) {
			t.Errorf("%s names %s, which is no setting", manual, name)
		}
	}
}

// words returns the names in a text that begin with a prefix.
func words(text, prefix string) (list []string) {
	for _, w := range strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) {
		if strings.HasPrefix(w, prefix) && strings.Trim(w, "-") != "" {
			list = append(list, w)
		}
	}
	return list
}

// settingsTable is the reference of all settings.
func settingsTable() string {
	var b strings.Builder
	for i, section := range config.Sections() {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "### %s\n\n| setting | default | must be | meaning | from |\n|---|---|---|---|---|\n", section.Title)
		for _, s := range section.Settings {
			names := "`--" + strings.ReplaceAll(s.Names, " ", "`, `--") + "`"
			value := ""
			if s.Default != "" {
				value = "`" + s.Default + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", names, value, cell(s.Allowed), cell(s.Usage), s.From)
		}
	}
	return b.String()
}

// unusedSettingsTable lists the names of Mooncake's master that are accepted and
// not used.
func unusedSettingsTable() string {
	var b strings.Builder
	b.WriteString("| name | accepted | why it is not used |\n|---|---|---|\n")
	for _, u := range config.Unused() {
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", u.Names, cell(u.Allowed), cell(u.Usage))
	}
	return b.String()
}

// cell keeps text from ending its cell in a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// metricTables are the metrics by group, but for those that each call has.
func metricTables() string {
	var b strings.Builder
	for _, g := range metrics.Groups() {
		shared := slices.ContainsFunc(g.Families, func(f metrics.Family) bool { _, ok := callSuffix(f); return ok })
		if shared {
			continue
		}
		fmt.Fprintf(&b, "#### %s\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n", g.Title)
		for _, f := range g.Families {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Kind, strings.Join(f.Labels, ", "), f.Help)
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// callSuffix returns what stands behind a call's name in one of the metrics
// that each call has.
func callSuffix(f metrics.Family) (string, bool) {
	longest := ""
	for _, op := range service.Ops() {
		if prefix := "master_" + string(op) + "_"; strings.HasPrefix(f.Name, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	suffix := strings.TrimPrefix(f.Name, longest)
	calls := []string{"requests_total", "failures_total", "partial_successes_total", "items_total", "failed_items_total"}
	return suffix, longest != "" && slices.Contains(calls, suffix)
}

// eachCallTable are the metrics that each call has, once.
func eachCallTable() string {
	calls := make(map[string][]string) // by suffix
	for _, f := range metrics.Families() {
		if suffix, ok := callSuffix(f); ok {
			calls[suffix] = append(calls[suffix], "`"+strings.TrimSuffix(strings.TrimPrefix(f.Name, "master_"), "_"+suffix)+"`")
		}
	}
	return "| metric | calls |\n|---|---|\n" +
		"| `master_<call>_requests_total`, `_failures_total` | " + strings.Join(calls["requests_total"], ", ") + " |\n" +
		"| `master_<call>_partial_successes_total`, `_items_total`, `_failed_items_total` | " + strings.Join(calls["items_total"], ", ") + " |\n"
}
