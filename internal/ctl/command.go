package ctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/lab/rig"
)

// Exit statuses of the program.
const (
	exitOK     = 0
	exitFailed = 1 // refused, failed, or a promise is broken
	exitUsage  = 2 // the command line is wrong; nothing was done
)

const about = `Looks at a cluster of Understudy masters and changes it: objects, segments, the
primary. Shows on this machine what it does (demo).

It moves metadata only. Nobody writes or reads the bytes of an object here.

The cluster is found at --address or --etcd_endpoints. Both are also taken from
the environment (UNDERSTUDY_ADDRESS, UNDERSTUDY_ETCD_ENDPOINTS, and so on for
--cluster-id and --etcd-prefix), unless one of them is given as a flag. In names
of flags '_' and '-' are the same.

It exits with 0 if all went well, 1 if something was refused or failed, and 2 if
the command line is wrong.`

// Command returns the program's command. The caller may add hidden ones.
func Command() *cobra.Command {
	g := newGlobals()
	root := &cobra.Command{
		Use:               "masterctl",
		Short:             "Look at a cluster of Understudy masters, and change it",
		Long:              about,
		Args:              noSuchCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{config.FlagError(cmd, err)} })
	g.bind(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: groupObjects, Title: "Objects:"},
		&cobra.Group{ID: groupCluster, Title: "Cluster:"},
		&cobra.Group{ID: groupShow, Title: "On this machine:"},
	)
	add(root, groupObjects, g.putCommands()...)
	add(root, groupObjects, g.getCommand(), g.existsCommand())
	add(root, groupObjects, g.removeCommands()...)
	add(root, groupCluster, g.segmentsCommand(), g.statusCommand(), g.digestCommand(), g.handoverCommand(), g.startEmptyCommand(), g.eventsCommand())
	add(root, groupShow, g.drillCommand(), g.demoCommand(), g.replayCommand(), g.benchCommand(), rig.EtcdCommand("etcd"))
	root.AddCommand(g.versionCommand())
	oneSpelling(root)
	return root
}

// Groups of commands in the help.
const (
	groupObjects = "objects"
	groupCluster = "cluster"
	groupShow    = "show"
)

func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// oneSpelling makes '_' and '-' the same in the flags of a command and of those
// below it. cobra's own way would also change hidden commands that are added
// later and have names of their own.
func oneSpelling(cmd *cobra.Command) {
	normal := func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	}
	cmd.Flags().SetNormalizeFunc(normal)
	cmd.PersistentFlags().SetNormalizeFunc(normal)
	for _, c := range cmd.Commands() {
		oneSpelling(c)
	}
}

// Main runs the program as a process and returns its exit status. SIGINT and
// SIGTERM end the command in order; a second one ends the process at once.
func Main(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Execute(ctx, root)
}

// Execute runs a command line and returns the exit status. The end of the
// context stands for an interruption by the user.
func Execute(ctx context.Context, root *cobra.Command) int {
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var usage usageError
	switch {
	case errors.As(err, &usage):
		cmd.PrintErrf("error: %v\nsee: %s --help\n", err, cmd.CommandPath())
		return exitUsage
	case ctx.Err() != nil:
		cmd.PrintErrln("error: interrupted")
	default:
		cmd.PrintErrln("error: " + explain(err))
	}
	return exitFailed
}

// A usageError is a fault of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// arguments takes from least to most arguments, which the text names; a most
// below 0 sets no bound.
func arguments(least, most int, text string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch n := len(args); {
		case n < least:
			return usagef("%s needs %s", cmd.CommandPath(), text)
		case most >= 0 && n > most:
			return usagef("unexpected argument %q: %s takes %s", args[most], cmd.CommandPath(), text)
		}
		return nil
	}
}

var noArguments = arguments(0, 0, "no arguments; flags are written --name=value")

// noSuchCommand refuses arguments of a command that only has commands below it.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	cmd.SuggestionsMinimumDistance = 2 // letters to change; cobra's own default, which it does not set by itself here
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError{errors.New(text)}
}
