package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// EnvPrefix begins every environment variable that a program of this project
// reads; the rest is the name of a flag in upper case with underscores.
const EnvPrefix = "UNDERSTUDY_"

const defaultTimeout = 10 * time.Second

// Flags are the flags of every command: how long it may take, and how it prints results.
type Flags struct {
	Timeout time.Duration
	JSON    bool // print JSON, not tables
	YAML    bool // print YAML, not tables
	// Complete completes the flags after parsing, before the command runs; may be nil.
	Complete func(*pflag.FlagSet) error
}

func (f *Flags) bind(flags *pflag.FlagSet) {
	flags.DurationVar(&f.Timeout, "timeout", defaultTimeout, "time limit of the command; by default, those that run a load, measure, follow or stay have none")
	flags.FuncP("output", "o", "what to print, `table|json|yaml` (default table)", func(s string) error {
		if !slices.Contains(Outputs(), s) {
			return errors.New("must be table, json or yaml")
		}
		f.JSON, f.YAML = s == "json", s == "yaml"
		return nil
	})
}

// Outputs are the values of --output.
func Outputs() []string { return []string{"table", "json", "yaml"} }

// Run runs the body of a command, within its time limit.
func (f *Flags) Run(cmd *cobra.Command, body func(context.Context) error) error {
	return f.run(cmd, true, body)
}

// RunLong is Run for a command that has no time limit unless --timeout is given. The error
// says so if that limit passed.
func (f *Flags) RunLong(cmd *cobra.Command, body func(context.Context) error) error {
	return f.run(cmd, cmd.Flags().Changed("timeout"), func(ctx context.Context) error {
		err := body(ctx)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("--timeout=%v has passed: %w", f.Timeout, err)
		}
		return err
	})
}

func (f *Flags) run(cmd *cobra.Command, limited bool, body func(context.Context) error) error {
	if f.Timeout <= 0 {
		return Misusef("--timeout is %v: it must be above 0", f.Timeout)
	}
	if f.Complete != nil {
		if err := f.Complete(cmd.Flags()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if limited {
		ctx, cancel = context.WithTimeout(ctx, f.Timeout)
		defer cancel()
	}
	return body(ctx)
}

// Print prints a result: as JSON or YAML if that is asked for, else as people
// prints it.
func (f *Flags) Print(cmd *cobra.Command, result any, people func(io.Writer)) error {
	w := cmd.OutOrStdout()
	switch {
	case f.YAML:
		return writeYAML(w, result)
	case !f.JSON:
		people(w)
		return nil
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(result)
}

// SizeVar adds a flag of a number of bytes above 0, with or without a unit. The
// usage names it `size`.
func SizeVar(flags *pflag.FlagSet, bytes *uint64, name, usage string) {
	flags.Func(name, usage, func(s string) (err error) {
		*bytes, err = ParseSize(s)
		return err
	})
}

// ParseSize returns the bytes that a text names.
func ParseSize(s string) (uint64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 {
		return 0, errors.New("must be bytes as a number or a size such as 64KiB or 1MiB, above 0")
	}
	return n, nil
}

// PrintLine prints one of many results for programs: as a line of JSON, or as a
// document of YAML.
func (f *Flags) PrintLine(w io.Writer, result any) error {
	if !f.YAML {
		return json.NewEncoder(w).Encode(result)
	}
	if _, err := io.WriteString(w, "---\n"); err != nil {
		return err
	}
	return writeYAML(w, result)
}
