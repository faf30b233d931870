package drill

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/understudy-store/understudy/lab/mutant"
)

// patchesOf returns the patches that the nodes of a drill are built with.
func (o *Options) patchesOf(d Drill) []string {
	if o.Break == "" {
		return d.patches
	}
	return append(slices.Clone(d.patches), o.Break)
}

// withProgram runs a drill with its nodes' program: this one, or a build of it
// with patches.
func withProgram(ctx context.Context, d Drill, o Options, r *Result, run func(program string) error) error {
	patches := o.patchesOf(d)
	if len(patches) == 0 {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		return run(program)
	}
	builder := o.Mutants
	if builder == nil {
		var err error
		builder, err = mutant.NewBuilder(ctx)
		switch {
		case errors.Is(err, mutant.ErrNoSource) && o.Break == "":
			r.Skipped = "its nodes are built with a patch: " + err.Error()
			return nil
		case err != nil:
			return err
		}
		defer func() { _ = builder.Close() }()
	}
	o.Progress("builds its nodes with " + strings.Join(patches, " and "))
	program, err := builder.Lab(ctx, patches...)
	if err != nil {
		return err
	}
	return run(program)
}
