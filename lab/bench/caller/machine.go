package caller

import (
	"fmt"
	"os"
	"runtime"

	"github.com/prometheus/procfs"
)

// A Machine is where a benchmark ran.
type Machine struct {
	Processors  int     `json:"processors"`   // shared by all processes of the run
	LoadAverage float64 `json:"load_average"` // of one minute, before the run
	Go          string  `json:"go"`
}

// Begin records the state of the machine before a run, and makes a folder for the run, which
// end removes.
func Begin() (m Machine, dir string, end func(), err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m, "", nil, err
	}
	busy, err := fs.LoadAvg()
	if err != nil {
		return m, "", nil, fmt.Errorf("how busy this machine is: %w", err)
	}
	if dir, err = os.MkdirTemp("", "understudy-bench-*"); err != nil {
		return m, "", nil, err
	}
	return Machine{runtime.GOMAXPROCS(0), busy.Load1, runtime.Version()}, dir, func() { _ = os.RemoveAll(dir) }, nil
}
