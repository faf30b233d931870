package mutant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// modulePath is the module whose source is patched.
const modulePath = "github.com/understudy-store/understudy"

// ErrNoSource says that there is nothing to build from.
var ErrNoSource = errors.New("the source of " + modulePath + " and a Go toolchain are needed; run this in a folder of the source")

// Source returns the root folder of the module that the working folder belongs
// to.
func Source(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}").Output()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	module, root, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if err != nil || module != modulePath {
		return "", ErrNoSource
	}
	return root, nil
}

// A Builder builds mutants in a temporary folder, each once. It is not for
// concurrent use.
type Builder struct {
	root, dir string
	built     map[string]string // executables by what they were built from
}

// NewBuilder makes a builder. It must be closed.
func NewBuilder(ctx context.Context) (*Builder, error) {
	root, err := Source(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "understudy-mutants-*")
	return &Builder{root: root, dir: dir, built: make(map[string]string)}, err
}

// Close removes all that was built.
func (b *Builder) Close() error { return os.RemoveAll(b.dir) }

// Lab builds the laboratory's program with some patches, and returns its path.
func (b *Builder) Lab(ctx context.Context, names ...string) (string, error) {
	return b.build(ctx, names, "build", "./cmd/lab")
}

// Tests builds the tests of a package (as in "./lab/sim").
func (b *Builder) Tests(ctx context.Context, pkg string, names ...string) (string, error) {
	return b.build(ctx, names, "test", "-c", "-vet=off", pkg)
}

func (b *Builder) build(ctx context.Context, names []string, command ...string) (string, error) {
	key := strings.Join(append(command, names...), " ")
	if exe, done := b.built[key]; done {
		return exe, nil
	}
	dir := filepath.Join(b.dir, fmt.Sprint(len(b.built)))
	overlay, err := writeOverlay(b.root, dir, names)
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "mutant")
	args := slices.Insert(command, len(command)-1, "-overlay="+overlay, "-ldflags=-s -w", "-o="+exe)
	if err := b.run(ctx, strings.Join(names, " and "), args); err != nil {
		return "", err
	}
	b.built[key] = exe
	return exe, nil
}

func (b *Builder) run(ctx context.Context, name string, args []string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mutant %s cannot be built: %w\n%s", name, err, out)
	}
	return nil
}

// writeOverlay writes the patched files and the file for -overlay into a folder. It returns
// the path of that file.
func writeOverlay(root, dir string, names []string) (overlay string, err error) {
	changed, err := Apply(root, names...)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for file, contents := range changed {
		copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(copied, contents, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(file))] = copied
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o644)
}

// Commit builds the laboratory's program as of a commit, and returns its path.
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
