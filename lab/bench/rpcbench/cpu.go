package rpcbench

import (
	"fmt"
	"os"

	"github.com/prometheus/procfs"
)

// spent is CPU time since some moment, in seconds, user and system time together.
type spent struct {
	master float64
	others float64 // all other processes on this machine, besides the cluster and this one
}

// since returns the CPU time since an earlier moment. The kernel counts the machine's time
// in another way than that of processes, so a small result may come out negative; it
// counts as 0.
func (s spent) since(earlier spent) spent {
	return spent{s.master - earlier.master, max(0, s.others-earlier.others)}
}

func (t *target) cpu() (s spent, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return s, err
	}
	all, err := fs.Stat()
	if err != nil {
		return s, fmt.Errorf("the machine's processor time: %w", err)
	}
	a := all.CPUTotal
	s.others = a.User + a.Nice + a.System + a.IRQ + a.SoftIRQ + a.Steal
	for _, pid := range t.pids() {
		used, err := processCPU(fs, pid)
		if err != nil {
			return s, err
		}
		s.others -= used
		if pid == t.master.PID {
			s.master = used
		}
	}
	return s, nil
}

func (t *target) pids() []int {
	list := []int{os.Getpid()}
	for _, one := range []*target{t, t.beside} {
		if one == nil {
			continue
		}
		for _, n := range one.Nodes {
			list = append(list, n.PID)
		}
		if one.mode == On { // else it is one of the nodes
			list = append(list, one.Members[0].PID())
		}
	}
	return list
}

func processCPU(fs procfs.FS, pid int) (float64, error) {
	p, err := fs.Proc(pid)
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return stat.CPUTime(), nil
}
