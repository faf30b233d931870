package access

import (
	"strings"
	"testing"
)

// FuzzTokens reads any file of tokens: an error names no token, and no token is short, a
// node's, or a client's without its client id.
func FuzzTokens(f *testing.F) {
	const token = "0123456789abcdef0123456789abcdef"
	f.Add([]byte("# comment\noperator a " + token + "\nclient b " + token + "x 00000000-0000-4000-8000-000000000001\nviewer c " + token + "y\n"))
	f.Add([]byte("node a " + token))
	f.Fuzz(func(t *testing.T, b []byte) {
		tokens, err := parseTokens(b)
		if err != nil {
			for _, word := range strings.Fields(string(b)) {
				if len(word) >= minToken && strings.Contains(err.Error(), word) {
					t.Fatalf("a bad file of tokens: got the error %q, want no token in it", err)
				}
			}
			return
		}
		for _, i := range tokens {
			if i.Role != Operator && i.Role != Viewer && i.Role != Client || i.Role != Client && i.ClientID != [16]byte{} {
				t.Fatalf("tokens %q: got %+v, want an operator, a viewer or a client, and an id of a client only", b, i)
			}
		}
	})
}
