package command

import (
	"net"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
)

func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"status"}, []string{`unknown command "status"`, "see: lab --help"}},
		{[]string{"bench", "renewal"}, []string{"did you mean renewals?"}},
		{[]string{"demo", "--failover-after", "199ms"}, []string{"--failover-after is 199ms"}},
		{[]string{"demo", "--failover-after", "5001ms"}, []string{"from 200ms to 5s"}},
		{[]string{"demo", "--lease-ttl", "1ms"}, []string{"--lease-ttl is 1ms"}},
		{[]string{"demo", "--workers", "0"}, []string{"--workers is 0"}},
		{[]string{"demo", "--speed", "-1"}, []string{"--speed is -1"}},
		{[]string{"demo", "--speed", "NaN"}, []string{"--speed is NaN"}},
		{[]string{"demo", "--requests", "-1"}, []string{"--requests is -1"}},
		{[]string{"demo", "--requests", "5", "--trace", "f"}, []string{"--requests is for a generated load"}},
		{[]string{"demo", "--compare", "--no-compare"}, []string{"exclude each other"}},
		{[]string{"cluster", "--etcd-members", "2"}, []string{"--etcd-members is 2", "1, 3 or 5"}},
		{[]string{"cluster", "stay"}, []string{`unexpected argument "stay"`, "after --"}},
		{[]string{"cluster", "--standbys", "0"}, []string{"--standbys is 0", "from 1 to 8"}},
		{[]string{"replay", "--hosts", "0"}, []string{"--hosts is 0"}},
		{[]string{"replay", "--capacity", "NaN"}, []string{"--capacity is NaN"}},
		{[]string{"replay", "--block", "64"}, []string{"--block is 64"}},
		{[]string{"etcd", "--lisen=127.0.0.1:0"}, []string{"did you mean --listen?"}},
		{[]string{"drill", "run", "29", "--stall", "20s"}, []string{"the stall is 20s", "(10s)"}},
		{[]string{"bench", "renewals", "--objects", "0"}, []string{"--objects is 0"}},
		{[]string{"bench", "renewals", "--rate", "0"}, []string{"--rate is 0"}},
		{[]string{"bench", "renewals", "--duration", "1ms"}, []string{"--duration is 1ms"}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) { run(t, tt.args...).WantMisuse(t, tt.says...) })
	}
}

func TestHelp(t *testing.T) {
	run(t, "--help").Want(t, cli.StatusOK, "--address", "demo", "cluster", "drill", "bench", "replay", "etcd")
	run(t, "bench").Want(t, cli.StatusOK, "renewals")
}

func TestReplayWithoutACluster(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close() // nobody listens there
	run(t, "replay", "--requests=1", "--address", at, "--timeout=300ms").
		Want(t, cli.StatusFailed, "UNAVAILABLE_IN_CURRENT_STATUS (-1010)", at, "connection refused", "what to do: check whether nodes run")
}
