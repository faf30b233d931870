package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// asProgram makes this test binary the program itself.
const asProgram = "TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// What the program does is tested in cmd/master. Here: that it is that one, and
// that its exit status arrives.
func TestProgram(t *testing.T) {
	for _, tt := range []struct {
		args   string
		status int
		want   string
	}{
		{"--help", 0, "follows the primary"},
		{"", 1, "must be given for a standby: name the etcd that its primary uses"},
		{"--rpc-prot=1", 1, "error: unknown flag: --rpc-prot; did you mean --rpc_port?"},
		{"--older=1 --undefok=older", 1, "unknown flags are ignored, as --undefok says: --older=1"},
		{"--etcd_endpoints=127.0.0.1:1 --start-empty", 1, "is not for a standby, which never starts empty"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], strings.Fields(tt.args)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		out, _ := cmd.CombinedOutput() // its status is looked at
		if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.Contains(string(out), tt.want) {
			t.Errorf("standby %s: exit status %d, want %d\n%s\nwant %q", tt.args, got, tt.status, out, tt.want)
		}
	}
}
