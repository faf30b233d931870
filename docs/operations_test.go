// Package docs_test keeps the parts of the documentation that are made from the
// program in step with it. To write them anew:
//
//	go test ./docs -update
package docs_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/metrics"
	"github.com/understudy-store/understudy/internal/service"
)

var update = flag.Bool("update", false, "write the generated parts of the documentation anew")

// Parts of documents that are made from the program, by the name that their
// markers have.
var generated = []struct {
	file, name string
	make       func() string
}{
	{"reference.md", "settings", settingsTable},
	{"reference.md", "metrics", metricTables},
	{"reference.md", "metrics of each call", eachCallTable},
	{"mooncake.md", "unused settings", unusedSettingsTable},
	{"mooncake.md", "flags", flagsTable},
	{"mooncake.md", "mooncake metrics", mooncakeMetricsTable},
}

func TestGeneratedPartsAreInStep(t *testing.T) {
	for _, part := range generated {
		text, want := read(t, part.file), part.make()
		before, rest, opens := strings.Cut(text, begin(part.name))
		got, after, closes := strings.Cut(rest, end(part.name))
		switch {
		case !opens || !closes:
			t.Errorf("%s: got no part between %q and %q, want one", part.file, begin(part.name), end(part.name))
		case *update:
			text = before + begin(part.name) + "\n\n" + want + "\n" + end(part.name) + after
			if err := os.WriteFile(part.file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		case got != "\n\n"+want+"\n":
			t.Errorf("%s: got the part %q not as the program has it, want it in step; run go test ./docs -update", part.file, part.name)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func begin(name string) string { return "<!-- generated: " + name + " -->" }
func end(name string) string   { return "<!-- end of " + name + " -->" }

// The documents for operators name metrics and settings in their prose, too.
func TestDocumentsNameWhatExists(t *testing.T) {
	known := settingsTable() + unusedSettingsTable()
	others := []string{
		"--print-config", "--config_path", "--yes", "--to", "--from", "--from-file", "--node", "--force", "--address", "--protocol", "--handover", "--short", "--prefix", "--watch", "--follow", "--count", "--state", "--mention", "--since", "--for", "--type", "--key", "--segment", "--limit", "--token-file", "--client-id", "--tenant", "--dry-run", "--puts", // of commands
		"--auto-compaction-mode", "--auto-compaction-retention", "--quota-backend-bytes", "--keys-only", // of etcd
		"--flag", "--noflag", "--flagfile", "--fromenv", "--tryfromenv", "--undefok", // of gflags
	}
	for _, file := range []string{"operations.md", "reference.md", "mooncake.md", "troubleshooting.md", "upgrade.md"} {
		text := read(t, file)
		for _, name := range words(text, "understudy_") {
			if name != "understudy_" && !slices.ContainsFunc(metrics.Families(), func(f metrics.Family) bool { return f.Name == name }) {
				t.Errorf("%s: got the metric %s, want only metrics that exist", file, name)
			}
		}
		for _, name := range words(text, "--") {
			if !strings.Contains(known, "`"+name+"`") && !slices.Contains(others, name) {
				t.Errorf("%s: got the setting %s, want only settings that exist", file, name)
			}
		}
	}
}

// A guide that operators read is short. What is looked up belongs to reference.md.
func TestOperationsIsShort(t *testing.T) {
	const most = 450
	if lines := strings.Count(read(t, "operations.md"), "\n"); lines >= most {
		t.Errorf("operations.md has %d lines, want less than %d: move what is looked up to reference.md", lines, most)
	}
}

// operations.md gives messages of the log to search for.
func TestLogLinesToSearchForExist(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "operations.md"), "Lines worth a search:")
	list, _, ends := strings.Cut(rest, ".")
	if !found || !ends {
		t.Fatal("operations.md: got no list of log lines worth a search, want one")
	}
	messages := logMessages(t)
	lines := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1)
	if len(lines) < 5 {
		t.Errorf("got %d log lines in operations.md, want the list", len(lines))
	}
	for _, line := range lines {
		if !slices.ContainsFunc(messages, func(m string) bool { return strings.HasPrefix(m, line[1]) }) {
			t.Errorf("operations.md: got the log line %q, want one with which a message begins", line[1])
		}
	}
}

// logMessages returns the messages that the nodes' packages log.
func logMessages(t *testing.T) (list []string) {
	t.Helper()
	message := regexp.MustCompile(`(?:Msgf?|[Ll]og\.(?:Info|Warn|Error))\("([^"]+)"`) // zerolog, slog
	for _, root := range []string{"../internal", "../promote", "../journal", "../leasesync", "../eviction"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			for _, m := range message.FindAllStringSubmatch(read(t, path), -1) {
				list = append(list, m[1])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
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
