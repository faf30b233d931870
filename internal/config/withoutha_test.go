package config

import (
	"slices"
	"strings"
	"testing"
)

// Without HA, what Mooncake's settings of it say has no effect, as in Mooncake: one line says so.
// With HA it is refused.
func TestSettingsOfHAWithoutIt(t *testing.T) {
	for _, setting := range []string{
		"ha_backend_type: k8s", "ha_backend_type: redis", "ha_backend_type: ''", "ha_backend_connstring: redis://:secret@h:6379/0",
		"ha_backend_connstring: namespace/lease", "etcd_endpoints: a_host", "etcd_endpoints: [a_host]",
	} {
		name, text, _ := strings.Cut(setting, ": ")
		args := []string{"--" + name + "=" + strings.Trim(text, "'[]")}
		want := []Warning{{Name: name, Value: strings.Trim(text, "'[]"), Origin: "flag --" + name, Problem: "is not used, because enable_ha is false"}}
		if cfg, warnings := mustLoad(t, append(args, "--enable_ha=false")); cfg.HA.Enabled || !slices.Equal(warnings, want) {
			t.Errorf("%s: got warnings %v, want %v", args, warnings, want)
		}
		file := inFile(t, "a.yaml", "enable_ha: false\n"+setting+"\n")
		_, warnings := mustLoad(t, file)
		if i := slices.IndexFunc(warnings, func(w Warning) bool { return w.Name == name }); i < 0 || warnings[i].Problem != want[0].Problem || len(warnings) != 2 {
			t.Errorf("%s in a file: got warnings %v, want one of it, and one of enable_ha", setting, warnings)
		}
		_, _, err := load(t, Primary, args)
		wantFault(t, err, name, "must be")
		_, _, err = load(t, Primary, append(file, "--enable_ha"))
		wantFault(t, err, name, "must be")
	}
	for _, args := range []string{"--ha_backend_type=etcd", "--ha_backend_connstring=h:2379", "--etcd_endpoints=h:2379"} {
		name := strings.Trim(strings.Split(args, "=")[0], "-")
		cfg, warnings := mustLoad(t, []string{args, "--enable_ha=false"})
		if asks := name != "ha_backend_type"; (len(warnings) == 1 && warnings[0].Name == name) != asks || len(warnings) > 1 || cfg.HA.Embedded() {
			t.Errorf("%s: got warnings %v, want one, of it: %v", args, warnings, asks)
		}
	}
}
