package files_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/understudy-store/understudy/internal/files"
)

// A file that could not be written, or is found wrong, leaves the older one as it was.
func TestPlace(t *testing.T) {
	name, wrong := filepath.Join(t.TempDir(), "f"), errors.New("wrong")
	for _, c := range []struct {
		text       string
		err, found error
		want       string
	}{{"a", nil, nil, "a"}, {"b", wrong, nil, "a"}, {"c", nil, wrong, "a"}, {"d", nil, nil, "d"}} {
		aside, err := os.Create(name + ".tmp")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := aside.WriteString(c.text); err != nil {
			t.Fatal(err)
		}
		err = files.Place(aside, name, c.err, func() error { return c.found })
		if failed := errors.Is(err, wrong); failed != (c.err != nil || c.found != nil) || err != nil && !failed {
			t.Errorf("%s: got %v, want %v or %v", c.text, err, c.err, c.found)
		}
		if b, err := os.ReadFile(name); err != nil || string(b) != c.want {
			t.Errorf("%s: there is %q, %v; want %q", c.text, b, err, c.want)
		}
		if _, err := os.Stat(name + ".tmp"); !os.IsNotExist(err) {
			t.Errorf("%s: got the file written aside still there (%v), want it gone", c.text, err)
		}
	}
}

func TestReadIsBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := files.Read(name, 3); err != nil || string(b) != "abc" {
		t.Errorf("got %q, %v; want abc", b, err)
	}
	if _, err := files.Read(name, 2); err == nil {
		t.Error("a file of 3 bytes, read with a bound of 2: got no error, want one")
	}
}
