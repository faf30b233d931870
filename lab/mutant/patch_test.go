package mutant

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

const sample = `The second line is missing.

diff --git a/pkg/a.go b/pkg/a.go
--- a/pkg/a.go
+++ b/pkg/a.go
@@ -1,3 +1,2 @@
 one
-two
 three
diff --git a/pkg/new.go b/pkg/new.go
new file mode 100644
--- /dev/null
+++ b/pkg/new.go
@@ -0,0 +1 @@
+new
`

func TestApply(t *testing.T) {
	for name, c := range map[string]struct {
		source, want, fault string
	}{
		"where the patch says": {"one\ntwo\nthree\n", "one\nthree\n", ""},
		"lines have moved":     {"zero\n\none\ntwo\nthree\nfour\n", "zero\n\none\nthree\nfour\n", ""},
		"no such lines":        {"one\ntwo\n2.5\nthree\n", "", "0 times, want once"},
		"in two places":        {"one\ntwo\nthree\none\ntwo\nthree\n", "", "2 times, want once"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "pkg"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "pkg", "a.go"), []byte(c.source), 0o644); err != nil {
				t.Fatal(err)
			}
			files, _, err := gitdiff.Parse(strings.NewReader(sample))
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string][]byte)
			for _, f := range files {
				if err = applyFile(got, root, f); err != nil {
					break
				}
			}
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("got error %v, want one with %q", err, c.fault)
				}
				return
			}
			want := map[string][]byte{"pkg/a.go": []byte(c.want), "pkg/new.go": []byte("new\n")}
			if err != nil || !maps.EqualFunc(got, want, func(a, b []byte) bool { return string(a) == string(b) }) {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}
