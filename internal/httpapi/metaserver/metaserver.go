// Package metaserver is the metadata server of Mooncake's transfer engine: a small
// store of values by key over HTTP, in which hosts publish how others reach them.
// Its answers are those of the C++ master's.
//
// With HA the values lie in etcd beside the journal, so that every node of the
// cluster gives the same answer whatever its role (Etcd). Without, they lie in
// memory (Memory).
package metaserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/security/access"
)

// Limits of what the store holds.
const (
	MaxKeyBytes   = 4096
	MaxValueBytes = 1 << 20 // with its key and etcd's own fields below etcd's 1.5 MiB
	MaxKeys       = 65_536
	MaxBytes      = 64 << 20 // keys and values
)

// callTimeout is how long a request waits for etcd. Clients wait for 3 s.
const callTimeout = 2500 * time.Millisecond

// maxWarnings are logged in a minute: any host may send what cannot be answered.
const maxWarnings = 10

// A Store holds values by key. A value is never nil.
type Store interface {
	// Get returns the value of a key, nil if there is none.
	Get(ctx context.Context, key string) ([]byte, error)
	// Update replaces the value of a key, nil for none, by what decide returns, if
	// that is a change. It may call decide several times.
	Update(ctx context.Context, key string, decide func(old []byte) (value []byte, change bool)) error
}

// errFull means that a limit of the store is reached.
var errFull = errors.New("the metadata server is full")

type totals struct{ keys, bytes int }

// after returns the totals when a value has replaced another one.
func (t totals) after(key string, old, value []byte) (totals, error) {
	if old != nil {
		t.keys, t.bytes = t.keys-1, t.bytes-len(key)-len(old)
	}
	if value == nil {
		return t, nil
	}
	t.keys, t.bytes = t.keys+1, t.bytes+len(key)+len(value)
	if t.keys > MaxKeys || t.bytes > MaxBytes {
		return t, fmt.Errorf("%w: at most %d keys and %d bytes are kept", errFull, MaxKeys, MaxBytes)
	}
	return t, nil
}

type answer struct {
	code int
	text string
}

// Handler answers requests from a store.
func Handler(s Store, log zerolog.Logger) http.Handler {
	mux, warnings := http.NewServeMux(), access.NewFewLines(log, maxWarnings)
	for method, h := range map[string]func(context.Context, Store, string, []byte) (answer, error){
		http.MethodGet: get, http.MethodPut: put, http.MethodDelete: remove,
	} {
		mux.HandleFunc(method+" /metadata", func(w http.ResponseWriter, r *http.Request) {
			a := handle(s, h, w, r)
			if a.code == http.StatusServiceUnavailable {
				warnings.Warn().Str("method", method).Str("error", a.text).Msg("the metadata server could not answer")
			}
			reply(w, a)
		})
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { reply(w, answer{http.StatusOK, "OK"}) })
	return mux
}

func handle(s Store, h func(context.Context, Store, string, []byte) (answer, error), w http.ResponseWriter, r *http.Request) answer {
	query, err := url.ParseQuery(r.URL.RawQuery)
	key := query.Get("key")
	switch {
	case err != nil || key == "":
		return answer{http.StatusBadRequest, "Missing key parameter"}
	case len(key) > MaxKeyBytes:
		return answer{http.StatusBadRequest, fmt.Sprintf("the key has %d bytes, at most %d are possible", len(key), MaxKeyBytes)}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxValueBytes))
	if err != nil {
		return answer{http.StatusRequestEntityTooLarge, fmt.Sprintf("a value of at most %d bytes: %v", MaxValueBytes, err)}
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	a, err := h(ctx, s, key, body)
	switch {
	case errors.Is(err, errFull):
		return answer{http.StatusInsufficientStorage, err.Error()}
	case err != nil:
		return answer{http.StatusServiceUnavailable, err.Error()}
	}
	return a
}

// reply writes an answer, and closes the connection: each thread of a client would keep
// one, and there may be many more threads than the server takes connections.
func reply(w http.ResponseWriter, a answer) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.code)
	_, _ = io.WriteString(w, a.text)
}

var notFound = answer{http.StatusNotFound, "metadata not found"}

func get(ctx context.Context, s Store, key string, _ []byte) (answer, error) {
	value, err := s.Get(ctx, key)
	if value == nil {
		return notFound, err
	}
	return answer{http.StatusOK, string(value)}, err
}

// put sets a value. That of a key with rpc_meta says who listens at an address: it
// is set once, so that two hosts with one name do not replace each other.
func put(ctx context.Context, s Store, key string, body []byte) (a answer, err error) {
	once := strings.Contains(key, "rpc_meta")
	err = s.Update(ctx, key, func(old []byte) ([]byte, bool) {
		switch same := bytes.Equal(old, body); {
		case !once || old == nil:
			a = answer{http.StatusOK, "metadata updated"}
			return body, old == nil || !same
		case same:
			a = answer{http.StatusOK, "metadata unchanged"}
		default:
			a = answer{http.StatusBadRequest, "Duplicate rpc_meta key not allowed"}
		}
		return nil, false
	})
	return a, err
}

func remove(ctx context.Context, s Store, key string, _ []byte) (a answer, err error) {
	err = s.Update(ctx, key, func(old []byte) ([]byte, bool) {
		a = answer{http.StatusOK, "metadata deleted"}
		if old == nil {
			a = notFound
		}
		return nil, old != nil
	})
	return a, err
}

// Forget deletes what clients have published under names of their segments, with a
// prefix before their keys.
func Forget(ctx context.Context, s Store, prefix string, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, name := range names {
		for _, key := range []string{prefix + "ram/" + name, prefix + "rpc_meta/" + name} {
			if err := s.Update(ctx, key, func(old []byte) ([]byte, bool) { return nil, old != nil }); err != nil {
				return fmt.Errorf("deleting %q: %w", key, err)
			}
		}
	}
	return nil
}
