package statefile_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/statefile"
)

// FuzzFile puts any bytes in a state file, from some position on, and makes its checksum
// right: it is refused, or gives a state that can be saved and read again.
func FuzzFile(f *testing.F) {
	var whole bytes.Buffer
	of := newPrimary(f, 3).source()
	if _, err := of.Write(f.Context(), &whole); err != nil {
		f.Fatal(err)
	}
	body := whole.Bytes()[:whole.Len()-8]
	f.Add(uint32(0), body, true)
	f.Add(uint32(len(body)), []byte{}, true)
	f.Add(uint32(len(body)/2), body[len(body)/2:], true)
	f.Add(uint32(20), []byte("\x00"), false)
	name := filepath.Join(f.TempDir(), "state")
	f.Fuzz(func(t *testing.T, at uint32, b []byte, sum bool) {
		changed := append(append([]byte(nil), body[:min(int(at), len(body))]...), b...)
		if sum {
			changed = binary.LittleEndian.AppendUint64(changed, xxh3.Hash(changed))
		}
		if err := os.WriteFile(name, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = statefile.Inspect(name)
		s, err := statefile.Read(name, "test", metadata.Options{}, codec)
		if err != nil {
			return
		}
		if at := s.Store.Position(); at.Seq != s.At.Head.Seq {
			t.Fatalf("a file was read: got a state at %d, want it at %d as its header says", at.Seq, s.At.Head.Seq)
		}
	})
}
