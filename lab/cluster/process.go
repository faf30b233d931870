package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/understudy-store/understudy/internal/app"
)

// Parented is a variable that is set in a child's environment. The child then reads standard
// input, and ends when that ends, which happens however the parent ends.
const Parented = "UNDERSTUDYCTL_PARENTED"

// DieWithParent makes a child end when its parent does. It does nothing in a
// process that was not started by StartProcess.
func DieWithParent() {
	if os.Getenv(Parented) == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) //nolint:forbidigo // nobody is left to tell
	}()
}

// A Process is a running child.
type Process struct {
	Name string
	app.Ready
	Log string // path of what it prints

	cmd    *exec.Cmd
	stdin  io.Closer
	ended  chan struct{}
	waited error // after ended
	once   sync.Once
}

// StartProcess starts an executable with arguments, in a working folder of its own under dir,
// and waits until it is ready. It adds --ready-file=PATH to the arguments; the process must
// write that file when it is ready. An empty exe means this program.
func StartProcess(ctx context.Context, exe, dir, name string, args ...string) (*Process, error) {
	if exe == "" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	ready := filepath.Join(dir, name, "ready.json")
	_ = os.Remove(ready) // that of an earlier process
	var b []byte
	p, err := launch(ctx, exe, dir, name, append(args, "--ready-file="+ready), func(context.Context) bool {
		var err error
		b, err = os.ReadFile(ready)
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &p.Ready); err != nil {
		p.Kill()
		return nil, fmt.Errorf("starting %s: its ready file: %w; the end of %s:\n%s", name, err, p.Log, p.tail())
	}
	return p, nil
}

// launch starts a child in a working folder of its own under dir, and waits until it is
// ready. One that does not become ready is killed.
func launch(ctx context.Context, exe, dir, name string, args []string, ready func(context.Context) bool) (*Process, error) {
	home := filepath.Join(dir, name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	p := &Process{Name: name, Log: filepath.Join(home, "log"), ended: make(chan struct{})}
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	p.cmd = exec.Command(exe, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = home, out, out
	p.cmd.Env = append(os.Environ(), Parented+"=1")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must reach only the parent, which stops the children in order
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		p.waited = p.cmd.Wait()
	}()
	if err := p.await(ctx, ready); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// startTimeout bounds how long a child may take to be ready.
const startTimeout = 30 * time.Second

func (p *Process) await(ctx context.Context, ready func(context.Context) bool) error {
	err := Poll(ctx, startTimeout, "it is ready", func(ctx context.Context) (bool, error) {
		alive := p.Alive() // read before ready, since a process may end as soon as it is ready
		yes := ready(ctx)
		if !yes && !alive {
			return false, fmt.Errorf("it ended before it was ready: %w", p.how())
		}
		return yes, nil
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w; the end of %s:\n%s", p.Name, err, p.Log, p.tail())
	}
	return nil
}

func (p *Process) how() error {
	if p.waited == nil {
		return errors.New("exit status 0")
	}
	return p.waited
}

func (p *Process) tail() string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// Alive reports whether the child runs.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Ended is closed when the child has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Signal sends a signal to the child.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the child at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() {
	p.once.Do(func() { _ = p.cmd.Process.Kill() })
	<-p.ended
	_ = p.stdin.Close()
}

// Stop asks the child to end (SIGTERM) and waits; one that does not within the
// timeout is killed.
func (p *Process) Stop(timeout time.Duration) error {
	_ = p.Signal(syscall.SIGTERM)
	return p.Wait(timeout)
}

// Wait waits until the process, which must have been told to end, has ended. It fails if the
// process ended with an error. If the timeout passes, it kills the process and fails.
func (p *Process) Wait(timeout time.Duration) error {
	select {
	case <-p.ended:
	case <-time.After(timeout):
		p.Kill()
		return fmt.Errorf("%s did not stop within %v and was killed", p.Name, timeout)
	}
	_ = p.stdin.Close()
	if _, exited := errors.AsType[*exec.ExitError](p.waited); exited {
		return fmt.Errorf("%s: %w; the end of %s:\n%s", p.Name, p.waited, p.Log, p.tail())
	}
	return nil
}

// pollEvery is the interval of Poll, short compared with everything that it waits for.
const pollEvery = 10 * time.Millisecond

// Poll waits until so returns true, within a time limit. An error of so ends it.
func Poll(ctx context.Context, limit time.Duration, what string, so func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it is not so after %v that %s", limit, what))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		switch yes, err := so(ctx); {
		case err != nil && ctx.Err() == nil:
			return err
		case yes:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
