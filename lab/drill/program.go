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

// withProgram calls run with the program for a drill's nodes: this one, or a build with patches.
func withProgram(ctx context.Context, d Drill, o Options, r *Result, run func(program, old string) error) error {
	patches := o.patchesOf(d)
	if len(patches) == 0 && !d.old {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		return run(program, "")
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
	o.Progress("builds its nodes " + o.nodesOf(d))
	program, old, err := o.build(ctx, d, builder)
	if err != nil {
		return err
	}
	return run(program, old)
}

// nodesOf describes, for people, how the nodes of a drill are built.
func (o *Options) nodesOf(d Drill) string {
	var list []string
	if patches := o.patchesOf(d); len(patches) > 0 {
		list = append(list, "with "+strings.Join(patches, " and "))
	}
	if d.old {
		list = append(list, "and those of commit "+o.From)
	}
	return strings.Join(list, ", ")
}

// build builds the nodes of a drill, and those of an older release if it needs them.
func (o *Options) build(ctx context.Context, d Drill, b *mutant.Builder) (program, old string, err error) {
	if program, err = b.Lab(ctx, o.patchesOf(d)...); err == nil && d.old {
		old, err = b.Commit(ctx, o.From)
	}
	return program, old, err
}
