package command

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A progress shows how far a run is: with a bar on a terminal, with a
// line for each stage elsewhere. It implements demo.Progress and is safe for
// concurrent use.
type progress struct {
	w        io.Writer
	terminal bool

	mu   sync.Mutex // guards what follows
	bar  *progressbar.ProgressBar
	done int
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// Stage begins a stage with a number of steps; 0 if they are not counted.
func (p *progress) Stage(what string, steps int) {
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal || steps == 0 {
		fmt.Fprintln(p.w, what)
		return
	}
	p.done = 0
	p.bar = progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
	)
}

// Done says how many steps are done. Calls may come out of order.
func (p *progress) Done(steps int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil || steps <= p.done {
		return
	}
	p.done = steps
	_ = p.bar.Set(steps)
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil {
		return
	}
	_ = p.bar.Finish()
	p.bar = nil
}
