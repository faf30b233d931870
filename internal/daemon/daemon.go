// Package daemon is the command line of a node: flags, logs, signals. cmd/master
// and cmd/standby are this with another role to begin with; masterctl runs it
// for its demo.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/config"
)

// Command returns the command that runs a node.
func Command(name string, role config.Role) *cobra.Command {
	short := map[config.Role]string{
		config.Primary: "Run a metadata master; the first of a cluster becomes its primary",
		config.Standby: "Run a hot standby that follows the primary and takes over when it dies",
	}[role]
	loader := config.New(role)
	cmd := &cobra.Command{
		Use:           name + " [flags]",
		Short:         short,
		Version:       Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, warnings, err := loader.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if show, _ := cmd.Flags().GetBool("print-config"); show {
				_, err := fmt.Fprint(cmd.OutOrStdout(), cfg.YAML())
				return err
			}
			log := NewLogger(cmd.ErrOrStderr(), cfg.Log)
			for _, w := range warnings {
				log.Warn().Str("setting", w.Name).Str("from", w.Origin).Msg(w.Reason)
			}
			a, err := app.New(cfg, Version(), log)
			if err != nil {
				return err
			}
			ctx, stop := signals(cmd.Context(), log)
			defer stop()
			return a.Run(ctx)
		},
	}
	loader.BindFlags(cmd.Flags())
	bindBreak(cmd.Flags())
	cmd.Flags().Bool("print-config", false, "print the effective configuration with its sources, and end")
	cmd.SetFlagErrorFunc(config.FlagError)
	return cmd
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q: flags are written --name=value, also for true and false", args[0])
}

// Main runs a command as a process and returns its exit status.
func Main(cmd *cobra.Command) int {
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		cmd.PrintErrln("error: " + err.Error())
		return 1
	}
	return 0
}

// signals returns a context that ends with SIGINT or SIGTERM. A second one
// kills the process.
func signals(ctx context.Context, log zerolog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	came := make(chan os.Signal, 1)
	signal.Notify(came, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-came:
			log.Info().Stringer("signal", s).Msg("stopping; a second signal stops at once")
			signal.Stop(came) // from here on a signal does what it does by default
			cancel(errors.New("stopped by " + s.String()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(came)
		cancel(nil)
	}
}

// NewLogger returns the logger that a configuration asks for, writing to w.
func NewLogger(w io.Writer, c config.Log) zerolog.Logger {
	console := c.Format == config.LogConsole
	if f, ok := w.(*os.File); ok && c.Format == config.LogAuto {
		console = term.IsTerminal(int(f.Fd()))
	}
	if console {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: "15:04:05.000"}
	}
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		level = zerolog.InfoLevel // Load has checked it
	}
	return zerolog.New(w).Level(level).Hook(stamp{})
}

// stamp puts the wall time on log lines.
type stamp struct{}

func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Time(zerolog.TimestampFieldName, clock.Wall())
}

// Version returns the version that this program was built as.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
