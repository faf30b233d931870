package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/bench/rpcbench"
	"github.com/understudy-store/understudy/lab/clitest"
)

func TestBenchRPC(t *testing.T) {
	args := []string{"bench", "rpc", "--ha=off", "--connections=2", "--batch=1,16", "--duration=100ms", "--segments=4", "--objects=100"}
	r := clitest.Decode[rpcbench.Report](t, run(t, append(args, "--calls=get,put,remove", "-o", "json")...).Want(t, cli.StatusOK, "without HA: starting", "without HA: 2 connections, 16 keys a call"))
	if len(r.Cells) != 12 {
		t.Fatalf("%d cells, want 12", len(r.Cells))
	}
	for _, c := range r.Cells {
		if c.HA != rpcbench.Off || c.Connections != 2 || c.Calls == 0 || c.KeysPerSecond <= 0 || len(c.Latency) == 0 || c.Latency[0].Max == 0 {
			t.Errorf("got %+v, want calls of 2 connections to a lone master, measured", c)
		}
	}
	o := run(t, append(args, "--protocols=mooncake", "--calls=put")...).Want(t, cli.StatusOK, "CPU µs/KEY", "PutStart + PutEnd")
	if rows := strings.Count(o.Out, "mooncake"); rows != 2 || strings.Contains(o.Out, "grpc") {
		t.Errorf("%d rows of mooncake's, want 2, and none of grpc's:\n%s", rows, o.Out)
	}
}

func TestBenchRPCPlot(t *testing.T) {
	drawing := filepath.Join(t.TempDir(), "rpc.svg")
	run(t, "bench", "rpc", "--ha=off", "--connections=1,2", "--batch=1", "--duration=100ms", "--segments=4", "--objects=100", "--protocols=mooncake",
		"--calls=get", "--think=0,20us", "--keys=zipf", "--plot="+drawing).Want(t, cli.StatusOK, "2 connections, 1 keys a call, 20µs between calls, zipf", "THINK µs")
	svg, err := os.ReadFile(drawing)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(svg), "get, mooncake, think 20 µs, zipf") {
		t.Errorf("the chart: got\n%s\nwant a line of the calls with a pause", svg)
	}
}

// This binary is the program before, too.
func TestBenchRPCBefore(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := run(t, "bench", "rpc", "--before="+program, "--rounds=2", "--ha=off", "--connections=2", "--batch=8", "--duration=100ms", "--segments=4", "--objects=100", "--protocols=mooncake", "--calls=get,remove").
		Want(t, cli.StatusOK, "without HA: starting both", "BEFORE µs/KEY", "of 2 ratios are above 1.05")
	if rows := strings.Count(o.Out, "mooncake"); rows != 2 || strings.Contains(o.Out, " put ") {
		t.Errorf("%d rows of mooncake's, want 2, and none of puts, which were not asked for:\n%s", rows, o.Out)
	}
}

func TestBenchRPCUsage(t *testing.T) {
	for want, args := range map[string][]string{
		`--ha has "maybe"`:       {"--ha=maybe"},
		"--connections is 0":     {"--connections=0,4"},
		"--rounds is 0":          {"--rounds=0"},
		`--think has "20"`:       {"--think=20"},
		"--think is -1s":         {"--think=-1s"},
		`--keys has "hot"`:       {"--keys=hot"},
		"--plot draws cells":     {"--plot=x.svg", "--before=lab"},
		"--duration is 1ms":      {"--duration=1ms"},
		`--calls has "scan"`:     {"--calls=scan"},
		`--protocols has "http"`: {"--protocols=http"},
		"--objects is 10":        {"--objects=10"},
	} {
		run(t, append([]string{"bench", "rpc"}, args...)...).Want(t, cli.StatusUsage, want)
	}
}
