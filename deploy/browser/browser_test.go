// Package browser_test walks through the web console in a real browser, while a primary
// is killed under load.
package browser_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/lab/cluster"
)

var update = flag.Bool("update", false, "write the screenshots to docs/")

// maxScreenshot bounds a screenshot, in bytes.
const maxScreenshot = 200 << 10

func TestMain(m *testing.M) {
	if status, child := cluster.RunChild(); child {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// start returns a pair of nodes under a load that goes on until the test ends.
func start(t *testing.T) (primary, standby *cluster.Node) {
	t.Helper()
	ctx := t.Context()
	c, err := cluster.Start(ctx, cluster.Config{Dir: t.TempDir(), ID: "walk", Etcd: 1, Names: []string{"node-a", "node-b"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	primary, _, err = c.Primary(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	standby = c.Standbys(primary)[0]
	stores, err := client.New(c.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		err := stores.MountSegment(ctx, client.Segment{
			ID: uuid.New(), Name: fmt.Sprintf("host-%d:%d", i/2+1, 7000+i), Base: uint64(i+1) << 40, Size: 64 << 20, Endpoint: fmt.Sprintf("host-%d:%d", i/2+1, 7000+i),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	load.Go(func() { play(ctx, stores) })
	t.Cleanup(func() {
		stop()
		load.Wait()
		stores.Close()
	})
	return primary, standby
}

// play puts objects and reads some, found and not, until the context ends. Calls that a
// failover breaks are of no interest here.
func play(ctx context.Context, c *client.Client) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		key := fmt.Sprintf("model-x/run-%d/block-%d", i%5, i)
		put, err := c.PutStart(ctx, client.PutItem{Key: key, Size: 256 << 10}, client.PutConfig{})
		if err == nil {
			_ = c.PutEnd(ctx, put.Ref(), client.SelectAll)
		}
		_, _ = c.GetReplicaList(ctx, key)
		if i%4 == 0 {
			_, _ = c.GetReplicaList(ctx, key+"-not-there")
		}
	}
}

// ask returns an answer, empty for none.
func ask(t *testing.T, n *cluster.Node, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.Ready.HTTP+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

// until waits for an answer with a text, and returns when it came.
func until(t *testing.T, n *cluster.Node, path, text string) time.Time {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); ; {
		got := ask(t, n, path)
		if strings.Contains(got, text) {
			return time.Now()
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("GET %s after a minute: got\n%s\nwant %q in it", path, got, text)
		}
	}
}

// curves reports whether a node's Timeline has a hit rate and puts of a second before a time.
func curves(t *testing.T, n *cluster.Node, before time.Time) bool {
	t.Helper()
	var got struct {
		At                   []int64
		Hit, Gets, Puts, P99 []float64 // null is 0
	}
	_ = json.Unmarshal([]byte(ask(t, n, "/console/timeline.json?w=5m")), &got) // empty without an answer
	for i, at := range got.At {
		if at <= before.Unix() && got.Hit[i] > 0 && got.Hit[i] < 1 && got.Puts[i] > 0 && got.P99[i] > 0 {
			return true
		}
	}
	return false
}

// untilCurves waits until a standby has curves of its primary.
func untilCurves(t *testing.T, n *cluster.Node) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !curves(t, n, time.Now()); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("the standby's curves after a minute: got none of its primary, want some")
		}
	}
}

// shownWithin is how soon after the kill the Timeline of the next primary has the gap, on a page
// that is open in a browser too. That takes 1.6 s, of which 1.2 s are the failover. What the
// failover takes beyond its own bound, as on a machine with much other work, does not count:
// the drills watch that.
const (
	shownWithin    = 2 * time.Second
	failoverWithin = 1500 * time.Millisecond // promised, see docs/guarantees.md
)

// The primary is killed under load: the Timeline of the next one has the gap with its
// cause. In a browser that is seen without a reload.
func TestKilledPrimary(t *testing.T) {
	primary, standby := start(t)
	until(t, primary, "/console/timeline", "term 1:")
	until(t, primary, "/console/cache", "Hot prefixes")
	b := openBrowser(t) // nil without one
	if b != nil {
		b.open(primary, "timeline?w=5m")
		b.wait(`document.getElementById("chart").dataset.points > 8`)
		b.shoot("timeline-before")
		b.open(primary, "memory")
		b.shoot("memory")
		b.open(primary, "cluster")
		b.shootTall("cluster", `document.getElementById("etcd").getBoundingClientRect().bottom <= innerHeight`)
		b.open(standby, "timeline?w=5m")
	}
	untilCurves(t, standby)
	killed := time.Now()
	primary.Kill()
	served := until(t, standby, "/readyz", "OK")
	shown := until(t, standby, "/console/timeline", "nobody answered before term 2")
	page := ask(t, standby, "/console/timeline")
	if !strings.Contains(page, "committed nothing for") && !strings.Contains(page, "leader key of") {
		t.Errorf("the Timeline after a kill: got\n%s\nwant the gap's cause", page)
	}
	t.Logf("after the kill: served again in %v, the gap on the Timeline in %v", served.Sub(killed), shown.Sub(killed))
	if !curves(t, standby, killed) {
		t.Error("the next primary's Timeline: got no put with a hit rate from before the kill, want one")
	}
	bound := shownWithin + max(0, served.Sub(killed)-failoverWithin)
	if late := shown.Sub(killed); late > bound {
		t.Errorf("the Timeline has the gap %v after the kill, want at most %v", late, bound)
	}
	if b == nil {
		t.Skip("no Chromium is installed (Debian: apt-get install chromium), so what a browser shows is not checked")
	}
	b.wait(`document.querySelector("tr.is-gap") && document.getElementById("chart").dataset.gaps > 0`)
	late := time.Since(killed)
	t.Logf("in the browser, without a reload, in %v", late)
	if late > bound {
		t.Errorf("the browser shows the gap %v after the kill, want at most %v", late, bound)
	}
	b.wait(`document.querySelector(".role").textContent === "primary"`)
	points := `document.getElementById("chart").dataset.points`
	b.run(chromedp.Evaluate("const before = +"+points, nil))
	b.wait(points + " > before + 4") // some seconds after it
	b.shootTall("timeline-after", `document.querySelector("tr.is-gap").getBoundingClientRect().bottom <= innerHeight`)
	b.inspect(standby)
}

// A browser is a headless Chromium with one page.
type browser struct {
	t       *testing.T
	ctx     context.Context
	mu      sync.Mutex
	asked   map[string]bool // hosts
	trouble []string        // on the browser's console
}

// openBrowser returns nil if none is installed.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1200, 900))
	allocated, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(end)
	b := &browser{t: t, ctx: ctx, asked: map[string]bool{}}
	chromedp.ListenTarget(ctx, func(e any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := e.(type) {
		case *network.EventRequestWillBeSent:
			if host, ok := strings.CutPrefix(e.Request.URL, "http://"); ok || !strings.HasPrefix(e.Request.URL, "data:") {
				host, _, _ = strings.Cut(host, "/")
				b.asked[host] = true
			}
		case *runtime.EventExceptionThrown:
			b.trouble = append(b.trouble, e.ExceptionDetails.Error())
		}
	})
	// The first run starts the browser, which lives as long as the context of that run.
	if err := chromedp.Run(ctx, network.Enable()); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) open(n *cluster.Node, page string) {
	b.t.Helper()
	b.run(chromedp.Navigate("http://"+n.Ready.HTTP+"/console/"+page), chromedp.WaitVisible("h1"))
}

// wait waits until an expression holds on the page.
func (b *browser) wait(expression string) {
	b.t.Helper()
	b.run(chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(50*time.Second)))
}

// is checks an expression on the page.
func (b *browser) is(what, expression string) {
	b.t.Helper()
	var holds bool
	b.run(chromedp.Evaluate(expression, &holds))
	if !holds {
		b.t.Errorf("%s: got %s false, want it true", what, expression)
	}
}

// shoot takes a screenshot, and keeps it with -update.
func (b *browser) shoot(name string) {
	b.t.Helper()
	var png []byte
	b.run(chromedp.CaptureScreenshot(&png))
	if len(png) == 0 || len(png) > maxScreenshot {
		b.t.Errorf("the screenshot %s has %d bytes, want at most %d", name, len(png), maxScreenshot)
	}
	if *update {
		if err := os.WriteFile(filepath.Join("..", "..", "docs", "console", name+".png"), png, 0o644); err != nil {
			b.t.Error(err)
		}
	}
}

// shootTall is shoot with a window that has room for more below a chart; an expression says
// that what matters is in the picture.
func (b *browser) shootTall(name, inside string) {
	b.t.Helper()
	b.run(emulation.SetDeviceMetricsOverride(1200, 1000, 1, false))
	b.is("what matters is in the picture "+name, inside)
	b.shoot(name)
	b.run(emulation.ClearDeviceMetricsOverride())
}

// phoneWidth is the width of a phone, in CSS pixels.
const phoneWidth = 390

// fits checks that a page does not scroll sideways. innerWidth is of no use for that: on a
// phone it grows with the page.
func (b *browser) fits(page string, width int) {
	b.t.Helper()
	b.is(fmt.Sprintf("%s at %d px", page, width), fmt.Sprintf(`document.documentElement.scrollWidth <= %d`, width))
}

// inspect looks at every page of a node: on a phone, in the dark, with the keyboard.
func (b *browser) inspect(n *cluster.Node) {
	b.t.Helper()
	for _, page := range []string{"timeline", "cluster", "memory", "cache", "key?key=nothing", "settings", "journal", "leases"} {
		b.run(emulation.SetDeviceMetricsOverride(phoneWidth, 800, 1, true))
		b.open(n, page)
		b.fits(page, phoneWidth)
		b.is(page, `document.querySelectorAll(".banner:not([hidden]):not(.warning)").length === 0`)
	}
	b.open(n, "timeline?w=5m")
	b.wait(`document.getElementById("chart").dataset.points > 0`)
	b.shoot("timeline-phone")
	b.run(emulation.ClearDeviceMetricsOverride())
	dark := emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}})
	b.run(dark)
	b.open(n, "timeline?w=5m")
	b.is("dark", `getComputedStyle(document.body).backgroundColor === "rgb(15, 19, 24)"`)
	b.wait(`document.getElementById("chart").dataset.points > 0`)
	b.shoot("timeline-dark")
	b.run(chromedp.KeyEvent("\t"))
	b.is("the first stop of the keyboard", `document.activeElement.className === "skip"`)
	b.mu.Lock()
	defer b.mu.Unlock()
	for host := range b.asked {
		if !strings.HasPrefix(host, "127.0.0.1:") {
			b.t.Errorf("hosts that the browser asked: got %q, want only this node's", host)
		}
	}
	if len(b.trouble) > 0 {
		b.t.Errorf("errors in the browser: got %s, want none", strings.Join(b.trouble, "\n"))
	}
}
