package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/promote"
)

// FuzzFile loads any bytes as a YAML or a JSON file: all that is wrong with it
// comes as faults that say where, or the configuration is one that its own YAML
// gives again.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[1]", "rpc_port: 1", "rpc-port: 1\nrpc_port: 2", "rpc_port: 1\n\tcluster_id: x", "a: &a [*a]",
		`{"rpc_port": 1, "default_kv_lease_ttl": "5s", "eviction_ratio": 0.05}`, "{\n \"rpc_port\": 1,\n}", `{"a.b": 1, "a": {"b": 2}}`,
		"etcd_endpoints: [a:1, {b: 2}]", "cluster_id: 2026-08-01", "data-dir: \"\\xff\\x01\"", "? [a, b]\n: 1", "1: 2", "<<: {rpc_port: 1}",
		"quota_bytes: 1", "journal-max-bytes: 64MiB\netcd-quota-bytes: 1GiB", "\"a\\nb\": 1", "node-id: \"a\\nb\"", "---\na: 1\n---\nb: 2",
		Config{}.YAML(), Default(Primary).YAML(),
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, json bool) {
		path := filepath.Join(dir, "a.yaml")
		if json {
			path = filepath.Join(dir, "a.json")
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, role := range []promote.Role{Primary, Standby} {
			cfg, warnings, err := load(t, role, []string{"--config_path=" + path})
			checkOutcome(t, cfg, warnings, err)
		}
	})
}

// FuzzValue gives any text to any setting, as a flag and in the environment:
// both say the same, and what is wrong names the setting.
func FuzzValue(f *testing.F) {
	names := settingNames()
	values := []string{
		"", "0", "-1", "1", "true", "5s", "1e400", "NaN", "0x10", "99999999999999999999", "292y", "1h1ns", "64MiB", "1.5KB", "18446744073709551615B",
		"[::1]:1", "http://a:1/", "a:1;b:2,c:3", "/a/../b", "//", "a b", "\xff", "a\nb", "-0", "١", "expired", "a=b",
	}
	for i := range max(len(names), len(values)) {
		f.Add(uint16(i%len(names)), values[i%len(values)])
	}
	f.Fuzz(func(t *testing.T, which uint16, value string) {
		name := names[int(which)%len(names)]
		if name == configPath || strings.ContainsRune(value, 0) { // no environment holds that
			return
		}
		cfg, warnings, err := load(t, Primary, []string{"--" + name + "=" + value})
		checkOutcome(t, cfg, warnings, err)
		for _, fault := range asFaults(err) {
			if fault.Name == "" {
				t.Errorf("--%s=%q: got the fault %v without a name, want the setting's", name, value, fault)
			}
		}
		variable := cli.EnvPrefix + strings.ToUpper(key(name))
		if isServiceLink(variable, value) {
			return
		}
		same, _, errToo := load(t, Primary, nil, variable+"="+value)
		cfg.origins, same.origins = nil, nil
		if !reflect.DeepEqual(cfg, same) || len(asFaults(err)) != len(asFaults(errToo)) {
			t.Errorf("%q for %s: as a flag %v, in the environment %v; want the same", value, name, err, errToo)
		}
	})
}

func settingNames() (names []string) {
	flags := pflag.NewFlagSet("node", pflag.ContinueOnError)
	BindFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

func asFaults(err error) Faults {
	faults, _ := err.(Faults)
	return faults
}

// checkOutcome demands faults that each say on one line what is wrong and
// where, or a configuration that its own YAML gives again.
func checkOutcome(t *testing.T, cfg Config, warnings []Warning, err error) {
	t.Helper()
	for _, w := range warnings {
		if w.Name == "" || w.Origin == "" || w.Problem == "" || strings.ContainsAny(w.String(), "\n\r") {
			t.Errorf("a warning: got %q, want name, origin and problem on one line", w.String())
		}
	}
	if err != nil {
		faults := faultsOf(t, err)
		if len(faults) == 0 {
			t.Errorf("an error of the configuration: got %v without faults, want at least one", err)
		}
		for _, fault := range faults {
			if fault.Origin == "" || fault.Problem == "" || strings.ContainsAny(fault.Error(), "\n\r") {
				t.Errorf("a fault: got %q, want origin and problem on one line", fault.Error())
			}
		}
		return
	}
	path := filepath.Join(t.TempDir(), "effective.yaml")
	if err := os.WriteFile(path, []byte(cfg.YAML()), 0o600); err != nil {
		t.Fatal(err)
	}
	again, _, err := load(t, cfg.Role, []string{"--config_path=" + path})
	if err != nil {
		t.Fatalf("its own YAML is refused: got %v\n%s, want no error", err, cfg.YAML())
	}
	before, after := settings(&cfg), settings(&again)
	for i := range before {
		if a, b := before[i].String(), after[i].String(); a != b {
			t.Errorf("%s was %q and becomes %q; want no change", before[i].name(), a, b)
		}
	}
}

// What fuzzing has found: a name in a file that breaks the line of its fault,
// and an id that is no text, with which no answer could be sent.
func TestFuzzFinds(t *testing.T) {
	_, _, err := load(t, Primary, inFile(t, "a.yaml", "\"a\\nb\": 1"))
	if faults := faultsOf(t, err); len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), `"a\nb" = "1" (`) {
		t.Errorf("got %v; want one fault, with the name quoted", err)
	}
	_, _, err = load(t, Primary, []string{"--cluster_id=\xff"})
	wantFault(t, err, "cluster_id", `"\xff"`, "UTF-8")
}
