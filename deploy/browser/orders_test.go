package browser_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// stops are what the keyboard can reach on a page, in the order of the page.
const stops = `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")].filter(e => !e.disabled && e.offsetParent !== null || e.className === "skip")`

// An operator hands over with the keyboard alone: each stop has a name, they come in the
// order of the page, and the browser asks before it sends the order.
func TestHandoverByKeyboard(t *testing.T) {
	primary, standby := start(t)
	until(t, primary, "/console/cluster", "Hand over to "+standby.Name)
	b := openBrowser(t)
	if b == nil {
		t.Skip("no Chromium is installed (Debian: apt-get install chromium), so no order is given in a browser")
	}
	var question string
	chromedp.ListenTarget(b.ctx, func(e any) {
		if d, ok := e.(*page.EventJavascriptDialogOpening); ok {
			b.mu.Lock()
			question = d.Message
			b.mu.Unlock()
			go func() { _ = chromedp.Run(b.ctx, page.HandleJavaScriptDialog(true)) }() // it blocks the page until then
		}
	})
	for _, name := range []string{"timeline", "cluster", "memory", "cache", "key?key=nothing", "settings", "journal", "leases"} {
		b.open(primary, name)
		b.named(name)
		b.inOrder(name)
	}
	b.open(primary, "cluster")
	b.wait(`document.querySelector('form[action$="Handover"] button').disabled === false`)
	b.run(chromedp.Focus(`form[action$="Handover"] button`), chromedp.KeyEvent(kb.Enter))
	b.wait(fmt.Sprintf(`document.getElementById("said").textContent === %q`, standby.Name+" is the primary."))
	b.mu.Lock()
	if want := "and make " + standby.Name + " the primary?"; !strings.Contains(question, want) {
		t.Errorf("the browser asks %q, want %q", question, want)
	}
	b.mu.Unlock()
	until(t, standby, "/readyz", "OK")
}

// named demands that each thing that can be used has a name for who does not see it, and
// that each region has one.
func (b *browser) named(where string) {
	b.t.Helper()
	type text struct {
		Value any `json:"value"`
	}
	var tree struct {
		Nodes []struct {
			Ignored bool `json:"ignored"`
			Role    text `json:"role"`
			Name    text `json:"name"`
		} `json:"nodes"`
	}
	// Not by its type in cdproto, which does not know all that newer browsers say.
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, accessibility.CommandGetFullAXTree, accessibility.GetFullAXTree(), &tree)
	}))
	used := 0
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		switch role := fmt.Sprint(n.Role.Value); role {
		case "button", "link", "textbox", "searchbox", "combobox", "checkbox", "region", "navigation":
			used++
			if name, _ := n.Name.Value.(string); strings.TrimSpace(name) == "" {
				b.t.Errorf("%s: got a %s without a name, want one for who does not see it", where, role)
			}
		}
	}
	if used < 10 {
		b.t.Errorf("%s: %d things have a role, want those of the page", where, used)
	}
}

// inOrder goes through a page with the key Tab, and demands that it stops at all that can
// be used, in the order of the page.
func (b *browser) inOrder(where string) {
	b.t.Helper()
	b.run(chromedp.Evaluate(`pause.click(); window.stops = `+stops+`; stops[0].focus()`, nil)) // some pages begin in a field
	var count int
	b.run(chromedp.Evaluate(`stops.length`, &count))
	for i := 1; i < min(count, 40); i++ {
		b.run(chromedp.KeyEvent(kb.Tab))
		b.is(fmt.Sprintf("%s, stop %d", where, i), fmt.Sprintf(`document.activeElement === stops[%d]`, i))
	}
}
