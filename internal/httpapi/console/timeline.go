package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// maxSteps is how many points a curve has at most.
const maxSteps = 720

// A window is the time that the Timeline shows.
type window struct {
	From, To time.Time
	Width    time.Duration
	At       string // as asked for; empty for now
}

// widths are those that can be chosen.
var widths = []time.Duration{5 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// windowOf returns the time that a request is about: the last hour, or as long as it
// says, up to now or around a moment.
func windowOf(r *http.Request, now time.Time) (window, error) {
	w := window{Width: time.Hour, At: r.FormValue("at")}
	if text := r.FormValue("w"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Minute || d > 24*time.Hour {
			return w, fmt.Errorf("%.20q is no width of time between 1m and 24h", text)
		}
		w.Width = d
	}
	w.To = now.Add(sampleEvery)
	if w.At != "" {
		at, err := moment(w.At, now)
		if err != nil {
			return w, err
		}
		w.To = at.Add(w.Width / 2)
	}
	w.From = w.To.Add(-w.Width)
	return w, nil
}

// moment reads a time of day, the last such one, or a whole time, both in UTC.
func moment(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			day := now.UTC().Truncate(24 * time.Hour)
			at := day.Add(t.Sub(t.Truncate(24 * time.Hour)))
			if at.After(now) {
				at = at.Add(-24 * time.Hour)
			}
			return at, nil
		}
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05", time.RFC3339Nano} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return now, fmt.Errorf("%.40q is no time; give it as 03:12 or 2026-01-31T03:12, in UTC", text)
}

// An incident is a line of the Timeline.
type incident struct {
	Kind    string    // term, gap, handover, role, snapshot, load
	From    time.Time // and To: the same for a moment
	To      time.Time
	Open    bool // it lasts
	AtLeast bool // it may have begun earlier
	whole   bool // a term in which its node was never interrupted
	Text    string
	Cause   string
}

// Lasted is how long it took; empty for a moment.
func (i incident) Lasted() string {
	d := i.To.Sub(i.From)
	switch {
	case d <= 0:
		return ""
	case i.AtLeast:
		return "at least " + lasted(d)
	}
	return lasted(d)
}

// incidents returns what happened in a time, newest first. The terms in etcd know of
// all nodes; the recorder knows what this one saw.
func (c *console) incidents(ctx context.Context, w window) ([]incident, error) {
	now := c.Now()
	terms, err := c.history(ctx)
	if errs.KindOf(err) == errs.NotSupported {
		err = nil // without HA there is one term, and nobody to take over
	}
	list := termIncidents(terms, now)
	marks, gaps, _ := c.Recorder.noted(w.From, w.To)
	for _, m := range marks {
		list = append(list, incident{Kind: m.kind, From: m.at, To: m.at, Text: m.text})
	}
	for _, g := range gaps {
		list = withGap(list, g, now)
	}
	list = slices.DeleteFunc(list, func(i incident) bool { return i.From.After(w.To) || i.To.Before(w.From) })
	slices.SortStableFunc(list, func(a, b incident) int { return b.From.Compare(a.From) })
	return list, err
}

// termIncidents turns the terms into lines: each term, and the gap before it.
func termIncidents(terms []*pb.TermRecord, now time.Time) (list []incident) {
	for i, t := range terms {
		began, err := time.Parse(time.RFC3339Nano, t.GetBegan())
		if err != nil {
			continue // nobody served in it
		}
		line := incident{Kind: "term", From: began, To: now, Open: true, Cause: t.GetWhy(), Text: fmt.Sprintf("term %d: %s served", t.GetTerm(), t.GetNodeId())}
		ended, err := time.Parse(time.RFC3339Nano, t.GetEnded())
		if err == nil {
			line.To, line.Open = ended, false
		} else if i+1 < len(terms) {
			line.Open = false
			if next, err := time.Parse(time.RFC3339Nano, terms[i+1].GetBegan()); err == nil {
				line.To = next.Add(-time.Duration(terms[i+1].GetGapMs()) * time.Millisecond)
			}
		}
		if line.Open {
			line.Text = fmt.Sprintf("term %d: %s serves", t.GetTerm(), t.GetNodeId())
		}
		line.whole = t.GetInterruptions() == 0
		if times := t.GetInterruptions(); times > 0 {
			line.Text += fmt.Sprintf("; interruptions: %d, for %v in all", times, time.Duration(t.GetInterruptedMs())*time.Millisecond)
		}
		list = append(list, line)
		if silent := time.Duration(t.GetGapMs()) * time.Millisecond; i > 0 && silent > 0 {
			list = append(list, gapBefore(t, began, silent))
		}
	}
	return list
}

// plannedFor is the longest gap that counts as a planned change: a handover takes a fraction of
// a second, and a node that is restarted by itself a few. After a longer one, who stopped the
// nodes did not start them again at once.
const plannedFor = 5 * time.Second

// gapBefore is the time without an answer before a term. A node that stops or hands
// over says so itself (promote's reason for the next term).
func gapBefore(t *pb.TermRecord, began time.Time, silent time.Duration) incident {
	line := incident{
		Kind: "gap", From: began.Add(-silent), To: began, AtLeast: t.GetGapAtLeast(), Cause: t.GetWhy(),
		Text: fmt.Sprintf("nobody answered before term %d", t.GetTerm()),
	}
	planned := strings.HasSuffix(t.GetWhy(), " handed over") || strings.HasSuffix(t.GetWhy(), " stopped")
	if planned && silent <= plannedFor {
		line.Kind, line.Text = "handover", fmt.Sprintf("a planned change to %s, term %d", t.GetNodeId(), t.GetTerm())
	}
	return line
}

// withGap adds a gap that this node saw. If the list has it already, from the records of
// terms, it only adds what this node saw to the cause there. One that the primary of the time
// did not see is none.
func withGap(list []incident, g gap, now time.Time) []incident {
	to, lasts := g.To, g.To.IsZero()
	if lasts {
		to = now
	}
	for i := range list {
		known := &list[i]
		if (known.Kind == "gap" || known.Kind == "handover") && known.From.Before(to.Add(sampleEvery)) && g.From.Before(known.To.Add(sampleEvery)) {
			if !strings.Contains(known.Cause, g.Cause) {
				known.Cause += "; this node saw: " + g.Cause
			}
			return list
		}
	}
	line := incident{Kind: "gap", From: g.From, To: to, Open: lasts, Text: "nobody served, as this node saw it", Cause: g.Cause}
	served := func(term incident) bool {
		return term.Kind == "term" && term.whole && term.From.Before(g.From) && to.Before(term.To)
	}
	if !g.Own && !lasts && slices.ContainsFunc(list, served) { // etcd may have been away from this node alone
		line.Kind, line.Text = "role", "this node could not see whether anybody served; the primary recorded no interruption"
	}
	return append(list, line)
}

type timelineView struct {
	window
	Widths    []time.Duration
	Incidents []incident
	Gaps      int
	Started   time.Time // since when this node records
	Chart     string    // the query of its data
}

func (c *console) timeline(r *http.Request) (any, error) {
	w, err := windowOf(r, c.Now())
	v := timelineView{window: w, Widths: widths, Chart: "timeline.json?w=" + w.Width.String()}
	if err != nil {
		return v, err
	}
	if w.At != "" {
		v.Chart += "&at=" + url.QueryEscape(w.At)
	}
	v.Incidents, err = c.incidents(r.Context(), w)
	_, _, v.Started = c.Recorder.noted(w.From, w.To)
	for _, i := range v.Incidents {
		if i.Kind == "gap" {
			v.Gaps++
		}
	}
	return v, err
}

// A band is a stretch of the chart, in seconds.
type band struct {
	Kind string  `json:"kind"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Text string  `json:"text"`
}

// chart answers with the curves and bands of the Timeline.
func (c *console) chart(w http.ResponseWriter, r *http.Request) {
	win, err := windowOf(r, c.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	incidents, _ := c.incidents(r.Context(), win) // without the terms if etcd is away: the page says so
	bands := []band{}
	for _, i := range incidents {
		bands = append(bands, band{i.Kind, seconds(i.From), seconds(i.To), i.Text})
	}
	body, err := json.Marshal(struct {
		From  float64 `json:"from"`
		To    float64 `json:"to"`
		Bands []band  `json:"bands"`
		series
	}{seconds(win.From), seconds(win.To), bands, c.Recorder.series(win.From, win.To)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
