package mutant

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Commit builds the laboratory's program as it was at a commit, and returns where it
// is.
func (b *Builder) Commit(ctx context.Context, commit string) (string, error) {
	dir := filepath.Join(b.dir, "commit")
	exe := filepath.Join(dir, "lab")
	if _, err := os.Stat(exe); err == nil {
		return exe, nil
	}
	source := filepath.Join(dir, "source")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return "", err
	}
	archive := filepath.Join(dir, "source.tar")
	for _, c := range []*exec.Cmd{
		exec.CommandContext(ctx, "git", "-C", b.root, "archive", "--output="+archive, commit),
		exec.CommandContext(ctx, "tar", "-xf", archive, "-C", source),
		exec.CommandContext(ctx, "go", "-C", source, "build", "-buildvcs=false", "-o="+exe, "./cmd/lab"),
	} {
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building commit %s: %w\n%s", commit, err, out)
		}
	}
	return exe, os.RemoveAll(source)
}
