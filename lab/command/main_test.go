package command

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// asProgram in the environment makes the test binary lab.
const asProgram = "LAB_TEST_PROGRAM"

// TestMain makes this binary lab, a node or an etcd when it was started as one.
func TestMain(m *testing.M) {
	if status, child := RunChild(); child {
		os.Exit(status)
	}
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main(Command()))
	}
	goleak.VerifyTestMain(m)
}

// run runs lab in this process.
func run(t *testing.T, args ...string) clitest.Outcome {
	t.Helper()
	return clitest.Run(t, Command(), args...)
}
