package cli

import "testing"

func TestNearest(t *testing.T) {
	known := map[string]string{"rpc_port": "rpc_port", "port": "rpc_port", "metrics_port": "metrics_port", "log-level": "log-level"}
	for name, want := range map[string]string{
		"rpc-prot": "rpc_port", "log_level": "log-level", "logs-level": "log-level", "metric_port": "metrics_port", "colour": "", "": "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("nearest to %q: got %q, want %q", name, got, want)
		}
	}
}
