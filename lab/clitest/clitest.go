// Package clitest runs the command lines of this project in the process of a
// test. It is for tests only, and it knows none of the commands.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/waittest"
)

// An Outcome is the result of a command.
type Outcome struct {
	Status   int
	Out, Err string
}

// Run runs a command line to its end.
func Run(t testing.TB, root *cobra.Command, args ...string) Outcome {
	t.Helper()
	var out, err bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&err)
	status := cli.Execute(t.Context(), root)
	return Outcome{status, out.String(), err.String()}
}

// Want fails the test unless the command ended with a status and printed all
// the texts.
func (o Outcome) Want(t testing.TB, status int, texts ...string) Outcome {
	t.Helper()
	if o.Status != status {
		t.Fatalf("exit status %d, want %d\n%s%s", o.Status, status, o.Out, o.Err)
	}
	for _, text := range texts {
		if !strings.Contains(o.Out+o.Err, text) {
			t.Errorf("%q is missing in:\n%s%s", text, o.Out, o.Err)
		}
	}
	return o
}

// WantMisuse fails the test unless the command line was refused: with nothing on
// its output, and all the texts on its error output.
func (o Outcome) WantMisuse(t testing.TB, texts ...string) {
	t.Helper()
	if o.Out != "" {
		t.Errorf("printed %q, want nothing", o.Out)
	}
	Outcome{Status: o.Status, Err: o.Err}.Want(t, cli.StatusUsage, texts...)
}

// Decode decodes the JSON that a command printed. A field that T does not have fails the
// test.
func Decode[T any](t testing.TB, o Outcome) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(o.Out))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in:\n%s%s", err, o.Out, o.Err)
	}
	return v
}

// A Background is a command that goes on while the test does other things.
type Background struct {
	Out, Err waittest.Buffer
	cancel   context.CancelFunc
	ended    chan struct{}
	status   int // once ended is closed
}

// Start starts a command line. It is interrupted at the end of the test.
func Start(t testing.TB, root *cobra.Command, args ...string) *Background {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b := &Background{cancel: cancel, ended: make(chan struct{})}
	root.SetArgs(args)
	root.SetOut(&b.Out)
	root.SetErr(&b.Err)
	go func() {
		defer close(b.ended)
		b.status = cli.Execute(ctx, root)
	}()
	t.Cleanup(func() { b.Interrupt() })
	return b
}

// Ended reports whether the command has ended.
func (b *Background) Ended() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// Interrupt ends the command, as Ctrl-C does, and returns its outcome.
func (b *Background) Interrupt() Outcome {
	b.cancel()
	return b.Wait()
}

// Wait waits until the command has ended by itself, and returns its outcome.
func (b *Background) Wait() Outcome {
	<-b.ended
	return Outcome{b.status, b.Out.String(), b.Err.String()}
}

// Eventually waits until so returns true, for at most a minute.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for !so() {
		if clock.Sleep(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}
