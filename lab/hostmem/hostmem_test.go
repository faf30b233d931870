package hostmem

import (
	"strings"
	"testing"
)

// Blocks are told apart: by object, by key, and by whether they are whole.
func TestBlocks(t *testing.T) {
	block, scratch := make([]byte, 256), make([]byte, 256)
	Fill(block, 7, "key")
	if wrong := Check(block, scratch, 7, "key"); wrong != "" {
		t.Errorf("got %q of a sound block, want nothing wrong", wrong)
	}
	for name, tt := range map[string]struct {
		id   uint64
		key  string
		want string
	}{
		"another object": {8, "key", "object 8 (key key) holds object 7"},
		"another key":    {7, "yek", "object 7 (key yek) holds object 7"},
	} {
		if got := Check(block, scratch, tt.id, tt.key); !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
	for at := range block {
		block[at] ^= 1
		if Check(block, scratch, 7, "key") == "" {
			t.Errorf("byte %d changed: got nothing wrong, want that it is noticed", at)
		}
		block[at] ^= 1
	}
}

// What is written is found there, over stripes too, and nowhere else.
func TestMemory(t *testing.T) {
	hosts := New("h", 2, 4*stripe)
	block, found := make([]byte, 2*stripe), make([]byte, 2*stripe)
	Fill(block, 1, "key")
	h := hosts["h-1:12345"]
	if err := hosts.Write(h.Endpoint, h.Base+stripe/2, block); err != nil {
		t.Fatal(err)
	}
	if err := hosts.Read(h.Endpoint, h.Base+stripe/2, found); err != nil || string(found) != string(block) {
		t.Errorf("bytes written over two stripes: got others or error %v, want the same read", err)
	}
	if err := hosts.Read("h-0:12345", hosts["h-0:12345"].Base+stripe/2, found); err != nil || string(found) == string(block) {
		t.Errorf("bytes written to one host: got them on the other or error %v, want them nowhere else", err)
	}
	for name, tt := range map[string]struct {
		endpoint string
		address  uint64
		want     string
	}{
		"before":  {h.Endpoint, h.Base - 1, "outside the segment"},
		"behind":  {h.Endpoint, h.Base + 2*stripe + 1, "outside the segment"},
		"nowhere": {"h-2:12345", h.Base, "does not exist"},
	} {
		for _, err := range []error{hosts.Read(tt.endpoint, tt.address, found), hosts.Write(tt.endpoint, tt.address, found)} {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got error %v, want %q", name, err, tt.want)
			}
		}
	}
}
