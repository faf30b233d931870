package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// Each fault of what a user gives is one clear error that says what to do, and
// exit status 1. PORT and FILE stand for what differs from run to run.
func TestBadInput(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	free := "--rpc_address=127.0.0.1 --rpc_port=0 --metrics_port=0"
	for _, tt := range []struct {
		name string
		file string // given as --config_path
		args string
		want string
	}{
		{
			name: "unknown flag",
			args: "master --rpc-prot=1",
			want: "error: unknown flag: --rpc-prot; did you mean --rpc_port?",
		},
		{
			name: "unknown flag that is like no other",
			args: "master --zzzzzzzzzzzzzzz",
			want: "error: unknown flag: --zzzzzzzzzzzzzzz; master --help lists all flags",
		},
		{
			name: "value of a flag apart from it",
			args: "master --enable_ha false",
			want: `error: "false" after --enable_ha does not turn it off: write --enable_ha=false. Mooncake's master reads no such word, and takes the flag for true`,
		},
		{
			name: "a word that is no flag", args: "master start",
			want: `error: unexpected argument "start": master takes no arguments; flags are written --name=value, also for true and false`,
		},
		{
			name: "all faults at once",
			file: "rpc_prot: 1\nsession-ttl: 1s\neviction_ratio: 7\n",
			args: "master --lease-sync-interval=1ms",
			want: `error: the configuration has 4 fault(s):
  session-ttl = "1s" (FILE, line 2): must be a duration in whole seconds such as 1m30s, from 2s to 87600h
  lease-sync-interval = "1ms" (flag --lease-sync-interval): must be a duration such as 1m30s, from 50ms to 87600h
  eviction_ratio = "7" (FILE, line 3): must be a number from 0 to 1
  rpc_prot = "1" (FILE, line 1): unknown name; did you mean rpc_port?`,
		},
		{
			name: "bad YAML, and a bad flag",
			file: "rpc_port: [1\n",
			args: "master --metrics_port=70000",
			want: `error: the configuration has 2 fault(s):
  metrics_port = "70000" (flag --metrics_port): must be a port from 0 to 65535; 0 takes a free one
  FILE: yaml: line 1: did not find expected ',' or ']'`,
		},
		{
			name: "file that does not exist",
			args: "master --config_path=none.yaml",
			want: "error: the configuration has 1 fault(s):\n  none.yaml: no such file or directory",
		},
		{
			name: "standby without etcd",
			args: "standby",
			want: `error: the configuration has 1 fault(s):
  etcd_endpoints = "" (default): must be given for a standby: name the etcd that its primary uses; or with join a node whose etcd it becomes a member of`,
		},
		{
			name: "standby without HA",
			args: "standby --enable_ha=false",
			want: `error: the configuration has 1 fault(s):
  enable_ha = "false" (flag --enable_ha): must be true for a standby: it follows a primary through etcd`,
		},
		{
			name: "gRPC port that is taken",
			args: "master --rpc_address=127.0.0.1 --metrics_port=0 --rpc_port=" + port,
			want: "error: 127.0.0.1:PORT is taken by another program: stop it, or choose another port with --rpc_port (0 takes a free one)",
		},
		{
			name: "HTTP port that is taken",
			args: "master --rpc_address=127.0.0.1 --rpc_port=0 --metrics_port=" + port,
			want: "error: 127.0.0.1:PORT is taken by another program: stop it, or choose another port with --metrics_port (0 takes a free one)",
		},
		{
			name: "port of the embedded etcd that is taken",
			args: "master --etcd-listen=127.0.0.1:" + port + " " + free,
			want: "error: starting the embedded etcd (--data-dir, --etcd-listen): embedded etcd: listen tcp 127.0.0.1:PORT: bind: address already in use; " +
				"stop what listens there, or choose another port (0 picks a free one)",
		},
		{
			name: "address of another machine",
			args: "master --rpc_address=192.0.2.1 --rpc_port=0 --metrics_port=0",
			want: "error: listen tcp 192.0.2.1:0: bind: cannot assign requested address; check --rpc_address and --rpc_port",
		},
		{
			name: "etcd that does not answer",
			args: "standby --etcd_endpoints=127.0.0.1:1 " + free,
			want: "error: etcd at 127.0.0.1:1 does not answer as it should: context deadline exceeded; check --etcd_endpoints and --etcd-user, and that etcd runs and has a leader",
		},
		{
			name: "ready file that cannot be written",
			args: "master --enable_ha=false --ready-file=none/ready " + free,
			want: "error: writing --ready-file none/ready: open none/READY: no such file or directory; name a file in a folder that exists and can be written",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(tt.args)
			file := ""
			if tt.file != "" {
				file = write(t, "config.yaml", tt.file)
				args = append(args, "--config_path="+file)
			}
			got := refused(t, args...)
			want := strings.NewReplacer("PORT", port, "FILE", file).Replace(tt.want)
			if got = hideNumber(got); got != want {
				t.Errorf("%s\ngot:\n%s\nwant:\n%s", tt.args, got, want)
			}
		})
	}
}

// hideNumber replaces the number in the name of a temporary file.
func hideNumber(s string) string {
	before, rest, found := strings.Cut(s, ".ready-")
	if !found {
		return s
	}
	return before + "READY" + strings.TrimLeft(rest, "0123456789")
}

// Two masters cannot share a folder: each has an etcd of its own there.
func TestSharedDataDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := startNode(t, dir, "m", "master", "--data-dir="+filepath.Join(dir, "data"))
	m.serves()
	got := refused(t, append([]string{"master", "--data-dir=" + filepath.Join(dir, "data")}, local...)...)
	want := fmt.Sprintf("error: starting the embedded etcd (--data-dir, --etcd-listen): embedded etcd: data directory is in use: %s is locked by process %d; "+
		"stop that, or choose another data directory", filepath.Join(dir, "data", "etcd"), m.PID)
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// What a user asks for before anything runs.
func TestPrintConfigAndVersion(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"master --version", "standby --help", "master --print-config"} {
		if text, status := runToEnd(t, strings.Fields(args)...); status != 0 || text != "" {
			t.Errorf("%s: got exit status %d and %q on standard error, want 0 and nothing", args, status, text)
		}
	}
}
