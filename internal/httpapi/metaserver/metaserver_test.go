package metaserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/httpapi/metaserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func notFull() bool { return false }

// A server answers over HTTP.
type server struct {
	t   *testing.T
	url string
}

func serve(t *testing.T, s metaserver.Store) server {
	t.Helper()
	h := httptest.NewServer(metaserver.Handler(s, zerolog.Nop()))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return server{t, h.URL}
}

func (s server) ask(method, query, body string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+"/metadata"+query, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr}).Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Error(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, b)
}

// forEach runs a test on each kind of store.
func forEach(t *testing.T, test func(t *testing.T, s metaserver.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, new(metaserver.Memory)) })
	t.Run("etcd", func(t *testing.T) { test(t, metaserver.NewEtcd(etcdtest.Start(t).Client(t), "/u", "c", notFull)) })
}

// The answers of the C++ master.
func TestAnswers(t *testing.T) {
	forEach(t, func(t *testing.T, store metaserver.Store) {
		s := serve(t, store)
		const missing, rpc = "400 Missing key parameter", "?key=mooncake%2Frpc_meta%2F10.0.0.1%3A12384"
		for _, step := range []struct{ method, query, body, want string }{
			{"GET", "?key=a", "", "404 metadata not found"},
			{"DELETE", "?key=a", "", "404 metadata not found"},
			{"PUT", "?key=a", `{"x":1}`, "200 metadata updated"},
			{"GET", "?key=a", "", `200 {"x":1}`},
			{"PUT", "?key=a", `{"x":2}`, "200 metadata updated"},
			{"PUT", "?key=a", `{"x":2}`, "200 metadata updated"},
			{"GET", "?key=a", "", `200 {"x":2}`},
			{"PUT", "?key=a", "", "200 metadata updated"},
			{"GET", "?key=a", "", "200 "},
			{"DELETE", "?key=a", "", "200 metadata deleted"},
			{"GET", "?key=a", "", "404 metadata not found"},

			{"PUT", rpc, "A", "200 metadata updated"},
			{"PUT", rpc, "A", "200 metadata unchanged"},
			{"PUT", rpc, "B", "400 Duplicate rpc_meta key not allowed"},
			{"GET", rpc, "", "200 A"},
			{"DELETE", rpc, "", "200 metadata deleted"},
			{"PUT", rpc, "B", "200 metadata updated"},

			{"GET", "", "", missing},
			{"PUT", "?key=", "A", missing},
			{"DELETE", "?other=a", "", missing},
			{"PUT", "?key=" + strings.Repeat("k", metaserver.MaxKeyBytes+1), "A", "400 the key has 4097 bytes, at most 4096 are possible"},
			{"PUT", "?key=large", strings.Repeat("v", metaserver.MaxValueBytes+1), "413 a value of at most 1048576 bytes: http: request body too large"},
			{"PUT", "?key=" + strings.Repeat("k", metaserver.MaxKeyBytes), strings.Repeat("v", metaserver.MaxValueBytes), "200 metadata updated"},
			{"GET", "?key=" + strings.Repeat("k", metaserver.MaxKeyBytes), "", "200 " + strings.Repeat("v", metaserver.MaxValueBytes)},
		} {
			if got := s.ask(step.method, step.query, step.body); got != step.want {
				t.Errorf("%s %.60s: got %.100q, want %.100q", step.method, step.query, got, step.want)
			}
		}
	})
}

// The store is bounded, and deleting makes room.
func TestFull(t *testing.T) {
	forEach(t, func(t *testing.T, store metaserver.Store) {
		s := serve(t, store)
		value := strings.Repeat("v", metaserver.MaxValueBytes)
		n := 0
		for ; n < 100; n++ {
			if got := s.ask("PUT", fmt.Sprintf("?key=%d", n), value); got != "200 metadata updated" {
				if want := "507 the metadata server is full: at most 65536 keys and 67108864 bytes are kept"; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				break
			}
		}
		if n != 63 {
			t.Errorf("got %d values of 1 MiB with their keys into 64 MiB, want 63", n)
		}
		if got, want := s.ask("DELETE", "?key=1", ""), "200 metadata deleted"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := s.ask("PUT", "?key=x", value), "200 metadata updated"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Two nodes share what lies in etcd: of writers that set one rpc_meta at the same
// time, through both, one wins, and no count of what is held gets lost.
func TestNodesShareEtcd(t *testing.T) {
	etcd := etcdtest.Start(t)
	nodes := []server{}
	for range 2 {
		nodes = append(nodes, serve(t, metaserver.NewEtcd(etcd.Client(t), "/u", "c", notFull)))
	}
	const writers = 16
	var wait sync.WaitGroup
	answers := make([]string, writers)
	for i := range writers {
		wait.Go(func() {
			answers[i] = nodes[i%2].ask("PUT", "?key=rpc_meta", fmt.Sprint(i))
			if got := nodes[i%2].ask("PUT", fmt.Sprintf("?key=%02d", i), "1234567"); got != "200 metadata updated" {
				t.Errorf("got %q, want \"200 metadata updated\"", got)
			}
		})
	}
	wait.Wait()
	won := -1
	for i, got := range answers {
		switch {
		case got == "200 metadata updated" && won < 0:
			won = i
		case got != "400 Duplicate rpc_meta key not allowed":
			t.Errorf("writer %d of one rpc_meta: got %q, want a refusal: writer %d had set it", i, got, won)
		}
	}
	for _, n := range nodes {
		if got, want := n.ask("GET", "?key=rpc_meta", ""), fmt.Sprint("200 ", won); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	resp, err := etcd.Client(t).Get(t.Context(), "/u-http-metadata/c/total")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("got %v, %v; want one key", resp, err)
	}
	if got, want := string(resp.Kvs[0].Value), fmt.Sprintf("17 %d", writers*9+len("rpc_meta")+len(fmt.Sprint(won))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Whatever stands where the count should be, an answer is short.
func TestStrangeTotal(t *testing.T) {
	client := etcdtest.Start(t).Client(t)
	s := serve(t, metaserver.NewEtcd(client, "/u", "c", notFull))
	if _, err := client.Put(t.Context(), "/u-http-metadata/c/total", strings.Repeat("x", metaserver.MaxValueBytes)); err != nil {
		t.Fatal(err)
	}
	got := s.ask("PUT", "?key=a", "b")
	if !strings.HasPrefix(got, "503 etcd has 1048576 bytes, ") || len(got) > 300 {
		t.Errorf("got %d bytes, %.300q; want an error of at most 300 bytes", len(got), got)
	}
}

// One who changes a value again and again fills the store's share of etcd's history, and no
// more; deleting goes on.
func TestWritesAreBounded(t *testing.T) {
	s := serve(t, metaserver.NewEtcd(etcdtest.Start(t).Client(t), "/u", "c", notFull))
	refused := "503 more was written than etcd's history has room for, so nothing is written; try again in a minute"
	got, written := "", 0
	for i := 0; i < 200 && got != refused; i++ {
		if got = s.ask("PUT", "?key=a", strings.Repeat(string(rune('a'+i%2)), metaserver.MaxValueBytes-64)); got == "200 metadata updated" {
			written++
		}
	}
	if got != refused || written < 63 {
		t.Errorf("got %q after %d values of 1 MiB, want %q after 63 at least", got, written, refused)
	}
	if got, want := s.ask("DELETE", "?key=a", ""), "200 metadata deleted"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Near etcd's quota nothing is written; deleting goes on.
func TestNearQuota(t *testing.T) {
	client := etcdtest.Start(t).Client(t)
	full := false
	s := serve(t, metaserver.NewEtcd(client, "/u", "c", func() bool { return full }))
	for _, step := range []struct {
		full         bool
		method, want string
	}{
		{false, "PUT", "200 metadata updated"},
		{true, "PUT", "200 metadata updated"}, // no change
		{true, "DELETE", "200 metadata deleted"},
		{true, "PUT", "503 etcd is nearly full, so nothing is written; try again"},
	} {
		full = step.full
		if got := s.ask(step.method, "?key=a", "A"); got != step.want {
			t.Errorf("%s: got %q, want %q", step.method, got, step.want)
		}
	}
}

// brokenStore answers nothing.
type brokenStore struct{ metaserver.Store }

func (brokenStore) Update(context.Context, string, func([]byte) ([]byte, bool)) error {
	return errors.New("etcd is away")
}

// Hosts that ask again and again do not fill the log.
func TestFewWarnings(t *testing.T) {
	var log bytes.Buffer
	h := metaserver.Handler(brokenStore{}, zerolog.New(&log))
	for range 30 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/metadata?key=a", strings.NewReader("A")))
		if got, want := fmt.Sprint(w.Code, " ", w.Body), "503 etcd is away"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if n := strings.Count(log.String(), "could not answer"); n != 10 || strings.Count(log.String(), "etcd is away") != n {
		t.Errorf("got %d lines, want 10 with the reason:\n%s", n, log.String())
	}
}

// What memory keeps of a URL is the key.
func TestMemoryKeepsNoURLs(t *testing.T) {
	m := new(metaserver.Memory)
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	const keys, size = 64, 1 << 20
	before := heap()
	for i := range keys {
		url := fmt.Sprintf("%d&%s", i, strings.Repeat("x", size))
		key, _, _ := strings.Cut(url, "&")
		if err := m.Update(t.Context(), key, func([]byte) ([]byte, bool) { return []byte("v"), true }); err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(heap() - before); grown > keys*size/2 {
		t.Errorf("%d keys of 2 bytes keep %d, want far less than the %d of their URLs", keys, grown, keys*size)
	}
	if v, err := m.Get(t.Context(), "63"); err != nil || string(v) != "v" {
		t.Errorf("got %q, %v; want v", v, err)
	}
}
