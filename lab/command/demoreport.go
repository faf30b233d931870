package command

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/demo"
	"github.com/understudy-store/understudy/lab/replay"
)

func demoReport(w io.Writer, r *demo.Report) {
	s := &r.Settings
	fmt.Fprintf(w, "\nLoad          %s: %s requests for %s blocks, %s of them distinct; an endless cache would hit %.1f %%\n",
		r.Load.Trace, cli.Count(r.Load.Requests), cli.Count(r.Load.Blocks), cli.Count(r.Load.Distinct), r.Load.Endless)
	fmt.Fprintf(w, "Played        by %d workers, %s, over %d hosts whose memory holds %.0f %% of the distinct blocks\n",
		s.Workers, pace(s.Speed), s.Hosts, 100*s.Capacity)
	fmt.Fprintf(w, "Clients       %s\n", accessText(s))
	fmt.Fprintf(w, "Times         failover after %v, lease TTL %v\n", cli.Millis(s.FailoverMillis), cli.Millis(s.LeaseTTLMillis))
	fmt.Fprintf(w, "Half-way      %s; no client got an answer for %s ms", s.Disturbance, cli.Count(r.OutageMillis))
	if r.HandoverMillis > 0 {
		fmt.Fprintf(w, " (%s ms as the old primary measured it)", cli.Count(r.HandoverMillis))
	}
	fmt.Fprintf(w, "\nHit rate      %s\n", hitRates(r.HitRate))
	fmt.Fprintf(w, "Objects       %s on the old primary at its end, %s on the new one after its promotion\n",
		cli.Count(r.Objects.Old), cli.Count(r.Objects.New))
	fmt.Fprintf(w, "Calls         %s a second; %s of %s had no answer and were given up\n\n",
		cli.Count(int64(r.CallsPerSecond)), cli.Count(r.Disturbed.Failed), cli.Count(r.Disturbed.Calls))
	latencies(w, r.Latency)
	fmt.Fprintln(w)
	checks(w, r.Checks)
	for _, example := range r.Examples {
		fmt.Fprintln(w, "  for example: "+example)
	}
	verdict := "All promises were kept."
	if !r.OK {
		verdict = "A PROMISE WAS BROKEN."
	}
	fmt.Fprintln(w, "\n"+verdict)
}

func accessText(s *demo.Settings) string {
	text := "over " + s.Protocol
	if s.Forward {
		text += ", know the standby's address alone, and nodes forward"
	}
	if s.AsOriginal {
		text += ", find the primary no sooner than Mooncake's own"
	}
	return text
}

func pace(speed float64) string {
	if speed == 0 {
		return "as fast as it goes"
	}
	return fmt.Sprintf("%g times as fast as it came", speed)
}

func hitRates(h demo.HitRate) string {
	text := fmt.Sprintf("%.1f %% of the blocks before, %.1f %% after", h.Before, h.After)
	if h.Undisturbed != nil {
		text += fmt.Sprintf("; the same requests as after, undisturbed: %.1f %%", *h.Undisturbed)
	}
	return text
}

// latencies prints how long calls took, as their callers saw it.
func latencies(w io.Writer, calls map[string]replay.Latency) {
	t := cli.NewTable(w, "Call", "Count", "p50 ms", "p90 ms", "p99 ms", "max ms")
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		l := calls[name]
		t.Row(name, cli.Count(l.Count), fmt.Sprintf("%.1f", l.P50), fmt.Sprintf("%.1f", l.P90), fmt.Sprintf("%.1f", l.P99), fmt.Sprintf("%.1f", l.Max))
	}
	t.End()
}

// checks prints a line for each check. A check that is no promise may fail.
func checks(w io.Writer, list []demo.Check) {
	t := cli.NewTable(w)
	for _, c := range list {
		verdict := "ok"
		switch {
		case !c.OK && c.Promise:
			verdict = "BROKEN"
		case !c.OK:
			verdict = "missed"
		}
		t.Row(verdict, c.Name, c.Text)
	}
	t.End()
}
