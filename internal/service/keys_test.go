package service_test

import (
	"slices"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/lonetest"
)

// Operators list the keys of nodes that do not serve, too.
func TestKeysOfANodeThatDoesNotServe(t *testing.T) {
	f := newFixture(t)
	names := lonetest.Keys("k/", 20)
	f.put(t, names...)
	f.fenced.Store(true)
	_, _, err := f.Keys(t.Context(), "default", "", true, service.Page{})
	want(t, "of a master that is fenced", err, errs.NotLeader)

	var got []string
	for page := (service.Page{Size: 7}); ; {
		keys, next, err := (*service.Scans)(nil).Keys(t.Context(), f.Store, "default", "^k/", true, page)
		if err != nil || len(keys) > 7 {
			t.Fatalf("a page: got %v, %v; want at most 7 keys and no error", keys, err)
		}
		got = append(got, keys...)
		if page.Token = next; next == "" {
			break
		}
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("got %v, want %v", got, names)
	}
}
