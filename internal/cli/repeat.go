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

// Repeat runs the body of a command again and again, until Ctrl-C or after so many
// rounds; 0 for no bound. A terminal shows the newest result only. A round that fails is
// reported, and the next one tries again; its error is returned if it is the last.
func (f *Flags) Repeat(cmd *cobra.Command, interval time.Duration, rounds int, body func(context.Context) error) error {
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
	return f.RunLong(cmd, func(ctx context.Context) error {
		for round := 1; ; round++ {
			var page bytes.Buffer // so that a screen does not flicker
			cmd.SetOut(&page)
			err := f.Run(cmd, body)
			switch {
			case ctx.Err() != nil:
				return nil // this is how watching ends
			case errors.As(err, new(misuseError)):
				return err
			case err != nil && round == rounds:
				_, _ = out.Write(page.Bytes())
				return err
			}
			if _, err := out.Write(append([]byte(before), page.Bytes()...)); err != nil {
				return err
			}
			var exit exitError
			if errors.As(err, &exit) {
				err = exit.err
			}
			if err != nil && page.Len() == 0 { // else the page shows what is wrong
				cmd.PrintErrln("error: " + explain(err, cmd.Name()))
			}
			if round == rounds || clock.Sleep(ctx, interval) != nil {
				return nil
			}
		}
	})
}
