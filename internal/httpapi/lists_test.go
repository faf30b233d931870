package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// mountLong mounts so many segments whose names are as long as can be.
func (r *rig) mountLong(n int) {
	r.t.Helper()
	long := strings.Repeat("n", metadata.MaxNameBytes-8)
	for i := range n {
		err := r.master.MountSegment(r.t.Context(), segment.Spec{
			ID: segment.ID{1: byte(i), 2: byte(i >> 8), 15: 1}, Client: segment.ClientID{7}, Base: uint64(i+10) << 40, Size: 1 << 20,
			Name: fmt.Sprintf("%08d%s", i, long), Endpoint: fmt.Sprintf("%08d%s", i, long), Protocol: "tcp" + long,
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// unlogged is for tests whose requests come at once: the log is for one.
func (r *rig) unlogged() {
	r.api.Log = zerolog.Nop()
	r.handler = r.api.Handler()
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Long lists that nobody reads take next to no memory, and one at a time for a host.
func TestListsThatNobodyReads(t *testing.T) {
	const conns, more = 50, 64 << 20
	r := newRig(t)
	r.unlogged()
	r.mountLong(5000) // 15 MB as JSON, which no socket takes without a reader
	var answered atomic.Int64
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.handler.ServeHTTP(w, q)
		answered.Add(1)
	}), 4*conns, nil, zerolog.Nop())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	before := heap()
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
		_ = s.Stop(context.Background())
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for range conns {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		if _, err := io.WriteString(c, "GET /get_segments_detail HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(30 * time.Second); answered.Load() < conns-1; {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("lists that nobody reads: got %d of %d answered, with %d MiB taken, want all but one", answered.Load(), conns, (heap()-before)>>20)
		}
	}
	if after := heap(); after > before+more {
		t.Errorf("%d MiB were taken, want less than %d", (after-before)>>20, more>>20)
	} else {
		t.Logf("%d KiB were taken", (int64(after)-int64(before))>>10)
	}
	refused := 0
	for _, c := range open {
		b := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(string(b), "503") {
			refused++
		}
	}
	if refused != conns-1 {
		t.Errorf("%d requests got 503, want all %d but one", refused, conns)
	}
	r.get("/query_segment?segment=a", http.StatusOK, "a\n...")
}

// A list is all there when it is read, and gives its place back.
func TestLongLists(t *testing.T) {
	r := newRig(t)
	r.mountLong(1200)
	for range 3 {
		for _, path := range []string{"/get_all_segments", "/get_segments_detail"} {
			code, body, _ := r.request(http.MethodGet, path)
			if n := strings.Count(body, "\n"); code != http.StatusOK || n != map[bool]int{true: 1201, false: 1}[path == "/get_all_segments"] {
				t.Errorf("GET %s: got %d with %d lines, want 200 with all 1201 segments", path, code, n)
			}
			if path == "/get_segments_detail" && (strings.Count(body, `{"segment_name":"`) != 1201 || !strings.HasSuffix(body, "}]}\n")) {
				t.Errorf("GET %s: got %d bytes that end in %q, want 1201 segments and the end of the list", path, len(body), body[len(body)-10:])
			}
		}
	}
}

// A stalled writer takes nothing until it is released.
type stalled struct {
	*httptest.ResponseRecorder
	begun    chan struct{}
	released chan struct{}
}

func (s stalled) Write(b []byte) (int, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	<-s.released
	return s.ResponseRecorder.Write(b)
}

// What a query of several keys finds is bounded, and so is what those of a host find that
// are not answered.
func TestQueriesOfManyKeysAreBounded(t *testing.T) {
	const segments, most = 8, 600 // keys, of 25 KB each
	r := newRig(t)
	r.unlogged()
	r.mountLong(segments)
	var keys []string
	for i := range most + 300 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	r.p.Put(func(p *metadata.Put) { p.Replicas = segments; p.Size = 1 }, keys...)
	query := func(n int) string { return "/batch_query_keys?keys=" + strings.Join(keys[:n], ",") }
	r.get(query(len(keys)), http.StatusBadRequest, `{"success":false,"error_code":-600,"error_message":"the answer has more than 16777216 bytes; ask for fewer keys at once"}`)
	again := query(100) + strings.Repeat(","+keys[0], 5000) // counts once
	r.get(again, http.StatusOK, `{"success":true,...`)

	begun, released, done := make(chan struct{}), make(chan struct{}), make(chan int, 2)
	for range 2 {
		go func() {
			w := stalled{httptest.NewRecorder(), begun, released}
			r.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, query(most), nil))
			done <- w.Code
		}()
		<-begun
	}
	r.get(query(most), http.StatusServiceUnavailable, `{"success":false,"error_code":-1010,"error_message":"too many large answers are under way here...`)
	r.get(query(1), http.StatusOK, `{"success":true,...`)
	close(released)
	for range 2 {
		if code := <-done; code != http.StatusOK {
			t.Errorf("a query that was under way: got %d, want 200", code)
		}
	}
	r.get(query(most), http.StatusOK, `{"success":true,...`)
}

// A list that finds no place is not collected first: many such requests may be under way.
func TestListsWithoutAPlaceAreNotCollected(t *testing.T) {
	const segments, tenants = 5000, 4000 // of 168 and 64 bytes each
	r := newRig(t)
	on := *r.master
	on.Tenants = true
	r.master = service.NewMaster(on)
	r.gate.Open(r.master)
	r.unlogged()
	r.mountLong(segments)
	for i := range tenants {
		if err := r.master.SetQuota(t.Context(), fmt.Sprint("tenant", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	begun, released, done := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go func() { // takes the place of the host
		defer close(done)
		r.handler.ServeHTTP(stalled{httptest.NewRecorder(), begun, released}, httptest.NewRequest(http.MethodGet, "/get_segments_detail", nil))
	}()
	<-begun
	for _, path := range []string{"/get_all_segments", "/get_segments_detail", "/api/v1/tenant_quotas"} {
		const times = 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			r.get(path, http.StatusServiceUnavailable, `{"success":false,"error_code":-1010,"error_message":"this list has ...`)
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 100<<10 {
			t.Errorf("%s takes %d KiB to be refused, want less than a list has", path, each>>10)
		}
	}
	close(released)
	<-done
	r.get("/api/v1/tenant_quotas", http.StatusOK, `{"success":true,"data":[{"tenant_id":"tenant0",...`)
}

// Keys and names are one a line, with nothing that a terminal would obey, and no two of them
// are written alike. Those that print come as they are.
func TestNamesInLists(t *testing.T) {
	r, id := newRig(t), byte(100)
	for name, want := range map[string]string{
		"model@/layer 1/0a1b": "model@/layer 1/0a1b", `C:\n`: `C:\n`, "C:\n": `"C:\n"`, `"C:\n"`: `"\"C:\\n\""`, "\x1b[2J": `"\x1b[2J"`, "\x9b": `"\x9b"`,
	} {
		r.p.Put(func(*metadata.Put) {}, name)
		id++
		r.mount(id, name, 1<<20)
		for _, path := range []string{"/get_all_keys", "/get_all_segments", "/query_segment?segment=" + url.QueryEscape(name)} {
			_, body, _ := r.request(http.MethodGet, path)
			if !slices.Contains(strings.Split(body, "\n"), want) {
				t.Errorf("%s has %q, want a line %s", path, body, want)
			}
		}
	}
}

// A ticking writer takes a little at a time.
type ticking struct {
	*httptest.ResponseRecorder
	tick *time.Ticker
}

func (w ticking) Write(b []byte) (int, error) {
	<-w.tick.C
	return w.ResponseRecorder.Write(b)
}

// A list of keys that is read all the time, and too slowly on the whole, is cut off.
func TestSlowReadersOfKeys(t *testing.T) {
	r := newRig(t)
	for i := range 900 { // three pages
		r.p.Put(nil, fmt.Sprintf("%04d%s", i, strings.Repeat("x", 3500)))
	}
	read := func() (body int, cut any) {
		tick := time.NewTicker(time.Millisecond) // of some 4 KB
		defer tick.Stop()
		w := ticking{httptest.NewRecorder(), tick}
		defer func() { body, cut = w.Body.Len(), recover() }()
		r.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/get_all_keys", nil))
		return 0, nil
	}
	r.api.SetPace(50*time.Millisecond, 1<<40)
	r.unlogged()
	if body, cut := read(); cut != http.ErrAbortHandler || body == 0 || body >= 900*3505 {
		t.Errorf("got %d bytes, then %v; want some of the keys, and the connection cut", body, cut)
	}
	r.api.SetPace(time.Minute, 1)
	r.unlogged()
	if body, cut := read(); cut != nil || body != 900*3505 {
		t.Errorf("got %d bytes, then %v; want all keys", body, cut)
	}
}
