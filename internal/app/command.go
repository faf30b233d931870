package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/promote"
)

// Command returns the command that runs a node: flags, logs, signals. The programs
// master and standby differ only in the role that it is given.
func Command(name string, role promote.Role) *cobra.Command {
	short := map[promote.Role]string{
		config.Primary: "Run a metadata master; the first of a cluster becomes its primary",
		config.Standby: "Run a hot standby that follows the primary and takes over when it dies",
	}[role]
	cmd := &cobra.Command{
		Use:           name + " [flags]",
		Short:         short,
		Version:       cli.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, warnings, err := config.Load(role, cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			if show, _ := cmd.Flags().GetBool("print-config"); show {
				_, err := fmt.Fprint(cmd.OutOrStdout(), cfg.YAML())
				return err
			}
			log := newLogger(cmd.ErrOrStderr(), cfg.Log)
			for _, w := range warnings {
				log.Warn().Str("setting", w.Name).Str("from", w.Origin).Msg(w.Problem)
			}
			a, err := New(cfg, cli.Version(), log)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			defer noteHangup(log)()
			defer context.AfterFunc(ctx, func() {
				log.Info().Str("signal", context.Cause(ctx).Error()).Msg("stopping; a second signal stops at once")
				stop() // from here on a signal has its default effect
			})()
			err = a.Run(ctx)
			level := zerolog.InfoLevel
			if err != nil {
				level = zerolog.ErrorLevel
			}
			log.WithLevel(level).Err(err).Msg("stopped")
			return err
		},
	}
	config.BindFlags(cmd.Flags())
	cmd.Flags().Bool("print-config", false, "print the effective configuration with its sources, and end")
	cmd.SetFlagErrorFunc(cli.FlagError)
	return cmd
}

// Main runs a command as a process and returns its exit status. It also takes arguments in
// the forms of gflags.
func Main(cmd *cobra.Command, args []string) int {
	args, notes, err := config.GFlags(cmd.Flags(), args, os.LookupEnv)
	if err != nil {
		cmd.PrintErrln("error: " + err.Error())
		return 1
	}
	for _, note := range notes {
		cmd.PrintErrln(note)
	}
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		cmd.PrintErrln("error: " + err.Error())
		return 1
	}
	return 0
}

// noteHangup keeps SIGHUP from ending the process, until stop is called, and logs the
// first one: in other programs it reloads the settings.
func noteHangup(log zerolog.Logger) (stop func()) {
	hangup, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		select {
		case <-hangup:
			log.Info().Msg("SIGHUP has no effect: settings change with a restart")
		case <-done:
		}
	}()
	return func() {
		signal.Stop(hangup)
		close(done)
	}
}

// newLogger returns the logger that a configuration asks for, writing to w.
func newLogger(w io.Writer, c config.Log) zerolog.Logger {
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
