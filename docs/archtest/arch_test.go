package archtest

import (
	"os"
	"testing"
)

func TestArchitecture(t *testing.T) {
	m, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.files) < 10 {
		t.Fatalf("files of the module: got %d, want at least 10", len(m.files))
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			used := make(map[string]bool)
			for _, f := range r.check(m) {
				if _, ok := r.allow[f.subject]; ok {
					used[f.subject] = true
					continue
				}
				t.Errorf("rule %q: got %s, want nothing that breaks it", r.name, f.text)
			}
			for subject := range r.allow {
				if !used[subject] {
					t.Errorf("rule %q: got an allowance for %q that excuses nothing, want it deleted", r.name, subject)
				}
			}
		})
	}
}
