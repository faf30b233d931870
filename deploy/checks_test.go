package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/rulefmt"
)

// What promtool check config and promtool check rules find, with their code.
func TestPrometheusTakesItsFiles(t *testing.T) {
	c, err := config.LoadFile("prometheus/prometheus.yml", false, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.ScrapeConfigs) != 1 || len(c.RuleFiles) != 1 {
		t.Errorf("got %d jobs and the rule files %v, want one each", len(c.ScrapeConfigs), c.RuleFiles)
	}
	for _, pattern := range c.RuleFiles {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) != 1 {
			t.Fatalf("rule files %s: got %v, %v; want one", pattern, files, err)
		}
		groups, faults := rulefmt.ParseFile(files[0], false)
		if len(faults) > 0 || len(groups.Groups) == 0 {
			t.Errorf("alerts %s: got faults %v and %d groups, want no faults and some groups", files[0], faults, len(groups.Groups))
		}
	}
}

// systemd finds nothing in the units. It looks for the programs, so another one stands in.
func TestUnitsAreOfSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze (apt-get install systemd)")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const name, programs = "understudy@.service", "/usr/local/bin/%i"
	text := readFile(t, "systemd/"+name)
	if strings.Count(text, programs) != 1 {
		t.Fatalf("the unit: got %d times %s, want it once", strings.Count(text, programs), programs)
	}
	verify := func(text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(text, programs, program, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, instance := range []string{"master", "standby"} {
			out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", filepath.Join(dir, strings.Replace(name, "@", "@"+instance, 1))).CombinedOutput()
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "understudy") { // and not of another unit of this machine
					found = append(found, line)
				}
			}
			if err != nil && len(found) == 0 {
				t.Skipf("systemd-analyze does not work here: %v\n%s", err, out)
			}
		}
		return strings.Join(found, "")
	}
	if found := verify(text); found != "" {
		t.Errorf("systemd on the unit: got\n%s\nwant nothing", found)
	}
	if found := verify(strings.Replace(text, "LimitNOFILE", "LimitNOFIEL", 1)); !strings.Contains(found, "LimitNOFIEL") {
		t.Errorf("systemd on a misspelled key: got %q, want LimitNOFIEL named", found)
	}
}

// systemd-analyze security rates what a unit leaves open, from 0 to 10; its threshold is in
// tenths. A node needs the network, its folder and the calls of @system-service.
func TestUnitIsConfined(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze (apt-get install systemd)")
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "security", "--help").CombinedOutput(); err != nil || !strings.Contains(string(out), "--offline") {
		t.Skipf("this systemd-analyze does not rate files: %v", err) // before systemd 250
	}
	unit := filepath.Join(t.TempDir(), "understudy@master.service")
	if err := os.WriteFile(unit, []byte(readFile(t, "systemd/understudy@.service")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "security", "--no-pager", "--offline=true", "--threshold=20", unit).CombinedOutput()
	if err != nil {
		t.Errorf("%v, want a rating of 2.0 at most:\n%s", err, out)
	}
}

// systemd gives a unit up after five starts within ten seconds unless told otherwise, in spite
// of Restart=always. A node whose certificates or token come later must start all the same.
func TestUnitIsStartedWithoutLimit(t *testing.T) {
	section, at := "", make(map[string]string)
	for line := range strings.Lines(readFile(t, "systemd/understudy@.service")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			at[section+key] = value
		}
	}
	for key, want := range map[string]string{"[Service]Restart": "always", "[Unit]StartLimitIntervalSec": "0"} {
		if got := at[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}
