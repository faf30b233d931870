package rpc

import (
	"bytes"
	"crypto/tls"
	"io"
	"testing"

	"google.golang.org/grpc/credentials"
)

// FuzzEither begins connections with any bytes to a port that takes TLS and plain text: what
// begins as TLS never goes on without it, and plain text comes through as it was sent, in
// whatever pieces.
func FuzzEither(f *testing.F) {
	hello := []byte{tlsRecord, 3, 1, 0, 5, 1, 0, 0, 1, 3}
	for _, in := range [][]byte{nil, {tlsRecord}, hello, hello[:4], []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), {0}, {tlsRecord - 1, tlsRecord}} {
		f.Add(in, []byte{0})
		f.Add(in, []byte{})
	}
	server := Credentials(&tls.Config{MinVersion: tls.VersionTLS12}, false)
	f.Fuzz(func(t *testing.T, in, sizes []byte) {
		c, info, err := server.Clone().ServerHandshake(&replayed{left: in, sizes: sizes})
		secret := len(in) > 0 && in[0] == tlsRecord
		if err != nil {
			if len(in) > 0 && !secret {
				t.Fatalf("plain text: got %v, want no error", err)
			}
			return
		}
		at, known := info.(interface {
			GetCommonAuthInfo() credentials.CommonAuthInfo
		})
		if secret || !known || at.GetCommonAuthInfo().SecurityLevel != credentials.NoSecurity {
			t.Fatalf("%q counts as %T, want plain text to count as without security, and no other", in, info)
		}
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, in) {
			t.Fatalf("plain text: got %q, error %v, want what was sent: %q", got, err, in)
		}
	})
}
