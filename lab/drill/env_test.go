package drill

import (
	"context"
	"path/filepath"
	"testing"
)

// A folder for data and logs that nobody has made is no failed drill.
func TestFolderIsMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	for range 2 {
		r := Run(t.Context(), Drill{Name: "d", run: func(context.Context, *Env) {}}, Options{Dir: dir})
		if !r.OK {
			t.Errorf("folder %s: got error %s, want a drill that is ok", dir, r.Error)
		}
	}
}
