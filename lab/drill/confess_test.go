package drill

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/understudy-store/understudy/journal"
)

func TestLossReasons(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got, err := lossReasons(path); got != nil || err != nil {
		t.Errorf("of no log: %v, %v", got, err)
	}
	text := `{"level":"info","reason":"start","message":"loaded a snapshot"}
not JSON
{"level":"warn","reason":"compacted","message":"this node lost the journal and needs a snapshot"}
{"level":"info","reason":"gap","message":"something else"}
{"level":"warn","reason":"digest","message":"this node lost the journal and needs a snapshot"}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := lossReasons(path)
	if want := []journal.Reason{journal.ReasonCompacted, journal.ReasonDigest}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
