// Package mutant builds programs of this module without one safeguard, to show that a
// drill or the simulation notices: a check that cannot fail proves nothing.
//
// Each safeguard has a patch of the source under patches. The text before the diff says
// what is missing. The source itself never changes: patches are applied in memory, and
// the build overlays the result (go build -overlay). So the package needs the source of
// the module and a Go toolchain; a drill without a mutant needs neither.
//
// It must never build anything that serves real clients.
package mutant

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

//go:embed patches
var patches embed.FS

const ext = ".patch"

// Names returns the names of all patches, sorted.
func Names() []string {
	entries, err := patches.ReadDir("patches")
	if err != nil {
		panic("mutant: " + err.Error()) // the folder is part of the program
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ext))
	}
	return names
}

// Missing returns the text of a patch that says which safeguard it removes.
func Missing(name string) (string, error) {
	_, missing, err := parse(name)
	return strings.Join(strings.Fields(missing), " "), err
}

func parse(name string) ([]*gitdiff.File, string, error) {
	b, err := patches.ReadFile(path.Join("patches", name+ext))
	if err != nil {
		return nil, "", fmt.Errorf("there is no mutant %q; there are %v", name, Names())
	}
	files, missing, err := gitdiff.Parse(bytes.NewReader(b))
	if err != nil {
		return nil, "", fmt.Errorf("patch %s: %w", name, err)
	}
	return files, missing, nil
}

// Apply applies patches one after the other to the source under a folder, in memory. It
// returns the changed files, by slash-separated path in that folder. Lines may have moved
// since a patch was written, but the context must match in exactly one place.
func Apply(root string, names ...string) (map[string][]byte, error) {
	changed := make(map[string][]byte)
	for _, name := range names {
		files, _, err := parse(name)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if err := applyFile(changed, root, f); err != nil {
				return nil, fmt.Errorf("patch %s does not apply: %s: %w", name, f.NewName, err)
			}
		}
	}
	return changed, nil
}

func applyFile(changed map[string][]byte, root string, f *gitdiff.File) error {
	if f.IsDelete || f.IsRename || f.IsCopy || f.IsBinary {
		return errors.New("a patch can change and add text files, nothing else")
	}
	source, known := changed[f.NewName]
	if !known && !f.IsNew {
		var err error
		if source, err = os.ReadFile(filepath.Join(root, filepath.FromSlash(f.OldName))); err != nil {
			return err
		}
	}
	if err := relocate(source, f.TextFragments); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := gitdiff.Apply(&out, bytes.NewReader(source), f); err != nil {
		return err
	}
	changed[f.NewName] = out.Bytes()
	return nil
}

// relocate moves fragments to the positions of their lines in the source.
func relocate(source []byte, fragments []*gitdiff.TextFragment) error {
	lines := strings.SplitAfter(string(source), "\n")
	for _, f := range fragments {
		if f.OldLines == 0 {
			continue // a new file
		}
		var old []string
		for _, l := range f.Lines {
			if l.Old() {
				old = append(old, l.Line)
			}
		}
		at := find(lines, old)
		if len(at) != 1 {
			return fmt.Errorf("the lines of %q are there %d times, want once; make the patch anew for the source as it is now", f.Header(), len(at))
		}
		f.OldPosition = int64(at[0]) + 1
	}
	return nil
}

// find returns the indexes at which lines contain wanted as a run.
func find(lines, wanted []string) (at []int) {
search:
	for i := range len(lines) - len(wanted) + 1 {
		for j, w := range wanted {
			if lines[i+j] != w {
				continue search
			}
		}
		at = append(at, i)
	}
	return at
}
