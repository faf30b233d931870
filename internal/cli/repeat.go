package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/understudy-store/understudy/internal/clock"
)

// clearScreen moves a terminal's cursor home and clears what is there.
const clearScreen = "\x1b[H\x1b[2J"

// Repeat runs the body of a command every interval, until Ctrl-C or for a number of rounds; 0
// sets no bound. A terminal shows only the newest result. A round that fails is reported, and
// the next one tries again. Repeat returns the error of the last round, or its exit status if
// --timeout ends the rounds.
func (f *Flags) Repeat(cmd *cobra.Command, interval time.Duration, rounds uint, body func(context.Context) error) error {
	if interval < 100*time.Millisecond {
		return Misusef("--interval is %v: it must be at least 100ms", interval)
	}
	out := cmd.OutOrStdout()
	defer cmd.SetOut(out)
	file, isFile := out.(*os.File)
	before := ""
	if isFile && term.IsTerminal(int(file.Fd())) {
		before = clearScreen
	}
	return f.run(cmd, cmd.Flags().Changed("timeout"), func(ctx context.Context) error {
		var last error // carries the exit status of the last round
		for round := uint(1); ; round++ {
			var page bytes.Buffer // printed at once, so that a screen does not flicker
			cmd.SetOut(&page)
			err := f.Run(cmd, body)
			switch {
			case ctx.Err() != nil && round == 1:
				return unlessInterrupted(ctx, err)
			case ctx.Err() != nil:
				return unlessInterrupted(ctx, last)
			case errors.As(err, new(misuseError)):
				return err
			case err != nil && round == rounds:
				_, _ = out.Write(page.Bytes())
				return err
			}
			if _, err := out.Write(append([]byte(before), page.Bytes()...)); err != nil {
				return err
			}
			last = nil
			if err != nil {
				exit := exitError{StatusFailed, err}
				errors.As(err, &exit)
				last, err = WithStatus(exit.status, nil), exit.err
			}
			if err != nil && page.Len() == 0 { // else the page shows what is wrong
				printError(cmd, explain(err, cmd.Name()))
			}
			if round == rounds {
				return nil
			}
			if clock.Sleep(ctx, interval) != nil {
				return unlessInterrupted(ctx, last)
			}
		}
	})
}

// unlessInterrupted returns the error of the last round if the time limit has passed. For
// Ctrl-C, which is the normal end of watching, it returns nil.
func unlessInterrupted(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return nil
}
