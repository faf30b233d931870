package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The program is the node of the other tests, and its exit status arrives.
func TestProgram(t *testing.T) {
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"--help", 0, "becomes its primary"},
		{"--print-config --rpc-port=1", 0, "# flag --rpc_port"},
		{"--rpc-prot=1", 1, "error: unknown flag: --rpc-prot; did you mean --rpc_port?"},
		{"--start-empty=perhaps", 1, "start-empty"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], strings.Fields(tt.args)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		out, _ := cmd.CombinedOutput() // its status is looked at
		if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.Contains(string(out), tt.want) {
			t.Errorf("master %s: exit status %d, want %d\n%s\nwant %q", tt.args, got, tt.status, out, tt.want)
		}
	}
}
