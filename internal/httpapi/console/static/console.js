"use strict";
// Keeps a page up to date: it asks for the page again, and exchanges the parts marked
// data-live that have changed. A part in which somebody types, selects or has the focus
// waits. Without this script the page is whole, and reloads itself.
(() => {
  const every = 500;
  const pause = document.getElementById("pause");
  const lost = document.getElementById("lost");
  let paused = false;
  let misses = 0;

  const inUse = (part) => {
    const selection = document.getSelection();
    return part.contains(document.activeElement) || (!selection.isCollapsed && part.contains(selection.anchorNode));
  };
  // Orders are possible only where this script asks about them first.
  const arm = (doc) => {
    for (const button of doc.querySelectorAll("form[data-order] button")) button.disabled = false;
  };
  const exchange = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html");
    arm(next);
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = next.getElementById(part.id);
      if (fresh && fresh.innerHTML !== part.innerHTML && !inUse(part)) {
        part.replaceChildren(...fresh.childNodes);
      }
    }
  };
  const fetchText = async (url) => {
    const answer = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(answer.status);
    return answer.text();
  };
  const look = async () => {
    if (!paused && !document.hidden) {
      try {
        const [page] = await Promise.all([fetchText(location.href), drawChart()]);
        exchange(page);
        misses = 0;
      } catch {
        misses++;
      }
      lost.hidden = misses < 3;
    }
    setTimeout(look, every);
  };
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", paused);
    pause.textContent = paused ? "Go on" : "Pause";
  });

  // Orders are asked about first; the answer is shown in place.
  arm(document);
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.dataset.order) return; // a filter
    event.preventDefault();
    document.activeElement.blur(); // so that the part is exchanged again
    if (!confirm(form.dataset.order)) return;
    const said = document.getElementById("said");
    said.hidden = false;
    said.textContent = "The order is under way.";
    try {
      const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), signal: AbortSignal.timeout(60000) });
      const text = await answer.text();
      said.textContent = answer.ok ? form.dataset.done : "Refused: " + (text.startsWith("{") ? JSON.parse(text).message : text);
    } catch (fault) {
      said.textContent = "No answer, so it is open whether the order was obeyed: " + fault.message;
    }
  });

  // The Timeline's curves. Bands and marks are drawn behind them.
  const place = document.getElementById("chart");
  let chart = null;
  let bands = [];
  let zoomed = false;
  let drawn = 0;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const paint = (u) => {
    const { ctx, bbox } = u;
    const tint = { gap: color("--bad"), handover: color("--quar"), snapshot: color("--pin"), load: color("--pin") };
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const rows = Array(4).fill(-Infinity); // where each row of labels ends: those of near terms stand below one another
    for (const band of bands.toSorted((a, b) => a.from - b.from)) {
      const from = u.valToPos(band.from, "x", true);
      const to = u.valToPos(band.to, "x", true);
      if (band.kind === "term") {
        ctx.fillStyle = color("--line");
        ctx.fillRect(from, bbox.top, 1, bbox.height);
        ctx.fillStyle = color("--dim");
        ctx.font = 12 * devicePixelRatio + "px sans-serif";
        const label = band.text.split(":")[0];
        const at = Math.max(from, bbox.left) + 4;
        const row = rows.findIndex((end) => end < at);
        if (row < 0 || to < bbox.left) continue; // the table has it
        rows[row] = at + ctx.measureText(label).width + 6 * devicePixelRatio;
        ctx.fillText(label, at, bbox.top + (row + 1) * 14 * devicePixelRatio);
      } else if (tint[band.kind]) {
        ctx.globalAlpha = band.to > band.from ? 0.35 : 0.8;
        ctx.fillStyle = tint[band.kind];
        ctx.fillRect(from, bbox.top, Math.max(to - from, 2 * devicePixelRatio), bbox.height);
        ctx.globalAlpha = 1;
      }
    }
    ctx.restore();
  };
  const clock = (seconds) => new Date(seconds * 1e3).toISOString().slice(11, 19);
  const curve = (label, scale, name, value) => ({ label, scale, stroke: () => color(name), width: 1.5, spanGaps: false, value: (_, v) => (v == null ? "–" : value(v)) });
  const axis = (scale, side, text) => ({ scale, side, size: 70, stroke: () => color("--dim"), grid: { stroke: () => color("--line"), width: 0.5, show: side === 3 }, values: (_, list) => list.map(text) });
  const options = () => ({
    width: place.clientWidth, height: 260, ms: 1e-3,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
    scales: { x: { time: true }, hit: { range: [0, 1] }, ms: { range: (_, lo, hi) => [0, Math.max(hi || 0, 1)] }, rate: { range: (_, lo, hi) => [0, Math.max(hi || 0, 1)] } },
    axes: [{ space: 90, values: (_, list) => list.map(clock), stroke: () => color("--dim"), grid: { stroke: () => color("--line"), width: 0.5 } },
      axis("hit", 3, (v) => Math.round(v * 100) + " %"), axis("ms", 1, (v) => (v < 1000 ? v + " ms" : v / 1000 + " s"))],
    series: [{ label: "UTC", value: (_, v) => (v == null ? "–" : clock(v)) }, curve("hit rate", "hit", "--good", (v) => (100 * v).toFixed(1) + " %"),
      curve("put latency", "ms", "--used", (v) => v.toFixed(2) + " ms"), curve("puts a second", "rate", "--dim", (v) => v.toFixed(0))],
    hooks: { drawClear: [paint], setScale: [(u, key) => { if (key === "x" && u.status) zoomed = u.scales.x.max - u.scales.x.min < span * 0.98; }] },
  });
  let span = 0;
  const drawChart = async () => {
    const slow = span > 7200 ? 5000 : 0; // long times change slowly
    if (!place || (chart && (zoomed || performance.now() - drawn < slow))) return;
    drawn = performance.now();
    const got = JSON.parse(await fetchText(place.dataset.src));
    bands = got.bands;
    span = got.to - got.from;
    const data = [got.at || [], got.hit || [], got.p99 || [], got.puts || []];
    if (!chart) chart = new uPlot(options(), data, place);
    else chart.setData(data, false);
    chart.setScale("x", { min: got.from, max: got.to });
    place.dataset.points = data[0].length; // for tests
    place.dataset.gaps = bands.filter((b) => b.kind === "gap").length;
  };
  addEventListener("resize", () => chart && chart.setSize({ width: place.clientWidth, height: 260 }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart && chart.redraw());
  look();
})();
