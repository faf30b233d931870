// Package cli has what the command lines of this project share: exit statuses, usage
// errors, advice on other errors, the flags --output and --timeout, tables, and
// suggestions for misspelled names.
//
// It has no command of its own, and must never call a node. Its advice on errors names
// commands of masterctl.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit statuses of a program.
const (
	StatusOK     = 0
	StatusFailed = 1 // refused, failed, or a promise is broken
	StatusUsage  = 2 // the command line is wrong; nothing was done
)

// Program makes a command the root of a program. Main or Execute print its
// errors, and '_' and '-' are the same in the flags of all commands below it.
func Program(root *cobra.Command, flags *Flags) {
	Group(root)
	root.SilenceUsage, root.SilenceErrors = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return Misuse(FlagError(cmd, err)) })
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	flags.bind(root.PersistentFlags())
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
		return StatusOK
	}
	var misuse misuseError
	var exit exitError
	switch {
	case errors.As(err, &misuse):
		printError(cmd, misuse.Error())
		cmd.PrintErrf("see: %s --help\n", cmd.CommandPath())
		return StatusUsage
	case ctx.Err() != nil:
		printError(cmd, interrupted(err, cmd.Name()))
	case errors.As(err, &exit):
		if exit.err != nil {
			printError(cmd, explain(exit.err, cmd.Name()))
		}
		return exit.status
	default:
		printError(cmd, explain(err, cmd.Name()))
	}
	return StatusFailed
}

// printError prints the text of an error, which may quote what a peer sent.
func printError(cmd *cobra.Command, text string) { cmd.PrintErrln("error: " + PrintableLines(text)) }

// A misuseError is a fault of the command line.
type misuseError struct{ error }

func (e misuseError) Unwrap() error { return e.error }

// Misuse makes an error a fault of the command line. Nil stays nil.
func Misuse(err error) error {
	if err == nil {
		return nil
	}
	return misuseError{err}
}

// An exitError ends a command with an exit status of its own.
type exitError struct {
	status int
	err    error // nil if there is nothing more to print
}

func (e exitError) Unwrap() error { return e.err }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d: %v", e.status, e.err) }

// WithStatus returns an error that ends a command with an exit status. The program prints
// err as any error; nil prints nothing.
func WithStatus(status int, err error) error { return exitError{status, err} }

// Misusef returns a fault of the command line.
func Misusef(format string, args ...any) error { return misuseError{fmt.Errorf(format, args...)} }

// Arguments accepts from least to most arguments, which text describes; a negative most
// sets no bound.
func Arguments(least, most int, text string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch n := len(args); {
		case n < least:
			return Misusef("%s needs %s", cmd.CommandPath(), text)
		case most >= 0 && n > most:
			return Misusef("unexpected argument %q: %s takes %s", args[most], cmd.CommandPath(), text)
		}
		return nil
	}
}

// NoArguments refuses arguments, such as a flag's value that is not attached with "=".
var NoArguments = Arguments(0, 0, "no arguments; flags are written --name=value, also for true and false")

// Group gives a command subcommands. Called without one of them, the command prints its
// help, unless it has a RunE of its own.
func Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	if cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	cmd.Args = noSuchCommand
	cmd.AddCommand(commands...)
	return cmd
}

func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	cmd.SuggestionsMinimumDistance = max(1, min(2, len(args[0])/3)) // letters to change
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return Misuse(errors.New(text))
}

// version is set by the linker (-X) where a build has no version control: an image, say.
var version string

// Version returns the version that this program was built as.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
