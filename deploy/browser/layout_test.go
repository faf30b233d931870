package browser_test

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/understudy-store/understudy/lab/cluster"
)

// drawnTexts keeps all that a page writes on a canvas, with where it begins and ends there, and
// gives the Timeline the data of a bad day: slow puts, and terms that follow one another closely.
const drawnTexts = `
window.drawn = [];
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const m = this.measureText(text);
  drawn.push({ text, left: x - m.actualBoundingBoxLeft, right: x + m.actualBoundingBoxRight, y, width: this.canvas.width });
  fillText.apply(this, arguments);
};
const ask = window.fetch;
window.fetch = async (url, options) => {
  if (!String(url).includes("timeline.json")) return ask(url, options);
  const to = Math.floor(Date.now() / 1000), at = Array.from({ length: 300 }, (_, i) => to - 300 + i);
  const terms = [1, 2, 3, 4, 5].map((n) => ({ kind: "term", from: to - 100 + 2 * n, to: to - 98 + 2 * n, text: "term " + n + ": a served" }));
  return new Response(JSON.stringify({ from: to - 300, to, bands: terms.reverse(), at, hit: at.map(() => 0.5), p99: at.map((_, i) => 10 * i), puts: at.map(() => 100) }));
};`

// What is written beside and on the curves is on the canvas as a whole, and no label of a term
// stands on another one.
func TestLabelsOfTheTimeline(t *testing.T) {
	b, primary := openPrimary(t)
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(drawnTexts).Do(ctx)
		return err
	}))
	for _, width := range []int64{1280, phoneWidth} {
		b.run(emulation.SetDeviceMetricsOverride(width, 900, 1, false))
		b.open(primary, "timeline?w=5m")
		b.wait(`document.getElementById("chart").dataset.points == 300 && drawn.some((d) => d.text.startsWith("term"))`)
		b.is("an axis of seconds", `drawn.some((d) => d.text === "2 s")`)
		b.is("each text is on the canvas", `drawn.every((d) => d.left >= 0 && d.right <= d.width)`)
		b.is("no label of a term is on another one", `drawn.filter((d) => d.text.startsWith("term")).every((d, _, all) => all.every((o) => o.text === d.text || o.y !== d.y || o.right < d.left || o.left > d.right))`)
	}
}

// Roles and addresses stand in one line each, also where a node lists the settings that would
// change, and no page scrolls sideways.
func TestTablesOfWideTexts(t *testing.T) {
	b, primary := openPrimary(t)
	b.run(emulation.SetDeviceMetricsOverride(1280, 900, 1, false))
	b.open(primary, "cluster")
	// What node-b would change, as a node with other settings says it.
	b.run(chromedp.Evaluate(`document.getElementById("pause").click(); document.querySelectorAll("#nodes td[data-label='Can take over']").forEach((td) => td.append("; default_kv_lease_ttl would change from 5s (the default) to 10s; eviction_high_watermark_ratio would change from 0.95 to 0.5; client_ttl would change from 10s (the default) to 33s; put_start_release_timeout_sec would change from 600 to 60"))`, nil))
	const oneLine = `(() => { for (const e of document.querySelectorAll("#nodes .role, #nodes td[data-label=Address]")) {
  const r = document.createRange(); r.selectNodeContents(e);
  if (new Set([...r.getClientRects()].map((c) => Math.round(c.top))).size !== 1) return false;
} return true; })()`
	b.is("roles and addresses are not broken", oneLine)
	b.fits("cluster", 1280)
	b.run(emulation.SetDeviceMetricsOverride(phoneWidth, 800, 1, true))
	for _, name := range []string{"cluster", "key", "journal"} {
		b.open(primary, name)
		b.fits(name, phoneWidth)
	}
}

// openPrimary returns a browser, and the primary of a new cluster.
func openPrimary(t *testing.T) (*browser, *cluster.Node) {
	t.Helper()
	b := openBrowser(t)
	if b == nil {
		t.Skip("no Chromium is installed (Debian: apt-get install chromium), so what a browser shows is not checked")
	}
	primary, standby := start(t)
	until(t, primary, "/console/cluster", "Hand over to "+standby.Name)
	return b, primary
}
