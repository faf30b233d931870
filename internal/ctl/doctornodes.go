package ctl

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// checkNodes checks the nodes against one another, and the warnings that they report.
func (d *diagnosis) checkNodes(all nodes) {
	answer := len(all.answering())
	if !slices.ContainsFunc(all, func(n *node) bool { return n.status == nil || n.away != nil }) {
		d.add("nodes", fine, "", "%d of %d answer at the addresses that they advertise", answer, len(all))
	}
	for _, n := range all {
		d.checkSilence(n)
		d.checkAdvertised(n)
	}
	s := statusOf(d.ClusterID, all)
	for _, r := range all.rivalries() {
		d.add(r.check, bad, rivalryHelp, "%s", r.text)
	}
	ready, blocked := 0, ""
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Promotable && !n.isElected() && (s.Leader == nil || n.NodeID != s.Leader.NodeID) {
			ready++
			blocked = cmp.Or(blocked, n.Blocked)
		}
	}
	switch {
	case len(all.serving()) > 1: // reported above
	case s.Leader != nil && all.primary().away != nil:
		d.add("primary", bad, "see what is said of the nodes", "%s serves in term %d, but not at %s, where clients look for it", s.Leader.NodeID, s.Leader.Term, s.Leader.Address)
	case s.Leader != nil:
		d.add("primary", fine, "", "%s serves at %s in term %d", s.Leader.NodeID, s.Leader.Address, s.Leader.Term)
	case len(s.Obstacles) > 0:
		d.add("primary", bad, s.Obstacles[0].Help, "no node serves: %s", s.Obstacles[0].Reason)
	case slices.ContainsFunc(all, func(n *node) bool { return n.status == nil && n.answered }): // it may serve soon
		d.add("primary", bad, "see what is said of the nodes", "no node serves")
	default:
		d.add("primary", bad, "start a master, and see masterctl status", "no node serves")
	}
	switch {
	case answer == 0 || all.best().status.GetJournal() == nil:
	case ready == 0:
		d.add("standbys", warns, "start a standby; masterctl status says why one that runs is not ready", "no standby could take over: if the primary dies, the cache is lost")
	case blocked != "":
		d.add("standbys", warns, "", "%d hold the state, but none would take over by itself: %s", ready, blocked)
	default:
		d.add("standbys", fine, "", "%d could take over", ready)
	}
	d.checkVersions(all, s.Witnesses)
	for _, w := range s.Warnings {
		if !strings.HasPrefix(w.Text, "no standby could take over") && !strings.HasSuffix(w.Text, rivalryHelp) && !strings.HasSuffix(w.Text, heldBackHelp) { // reported above
			d.add("warnings", warns, "", "%s says: %s", w.NodeID, w.Text)
		}
	}
	if len(s.Warnings) == 0 && answer > 0 {
		d.add("warnings", fine, "", "no node has one")
	}
}

func (d *diagnosis) checkSilence(n *node) {
	if n.status != nil {
		return
	}
	named, cause := n.address, rpcerr.Cause(n.address, n.err)
	if n.id != "" && n.id != n.address {
		named = n.id + " " + n.address
	}
	switch {
	case n.refuses():
		d.add("nodes", bad, "call with the certificate or the token of an operator or a viewer: --tls-cert and --tls-key, or --token-file", "%s refused this call: %s", named, cause)
		return
	case n.answered:
		d.add("nodes", bad, "", "%s answers, but not as a node of this cluster that has started: %s", named, cause)
		return
	}
	d.add("nodes", bad, "start it, or correct the address that it advertises (--advertise-address) or that you gave",
		"%s does not answer: %s", named, cause)
}

// tryAdvertised calls the nodes that answered at another address than the one that they
// advertise, at the latter: there clients and other nodes look for them.
func (ns nodes) tryAdvertised(ctx context.Context, clusterID string) {
	var wg sync.WaitGroup
	for _, n := range ns.answering() {
		if at := n.status.GetNode().GetRpcAddress(); at != n.address {
			wg.Go(func() {
				there := &node{id: n.id, address: at}
				n.away = there.ask(ctx, n.as, clusterID)
				there.close()
			})
		}
	}
	wg.Wait()
}

func (d *diagnosis) checkAdvertised(n *node) {
	if n.away == nil {
		return
	}
	at := n.status.GetNode().GetRpcAddress()
	d.add("nodes", bad, "correct its --advertise-address, or run masterctl where clients run, if only this machine does not reach it",
		"%s answers at %s, but not at %s, which it advertises to clients and other nodes: %s", n.id, n.address, at, rpcerr.Cause(at, n.away))
}

func (d *diagnosis) checkVersions(all nodes, witnesses []witnessResult) {
	var versions []string
	for _, n := range all.answering() {
		versions = append(versions, n.status.GetNode().GetVersion())
	}
	for _, w := range witnesses {
		versions = append(versions, w.Version)
		d.add("witness", fine, "", "%s runs a member of etcd, and holds no metadata", w.NodeID)
		d.checkSpace("etcd of "+w.NodeID, w.EtcdBytes, w.EtcdQuota)
	}
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) > 1 {
		d.add("versions", warns, "end the upgrade: until then the cluster keeps to what the older version knows", "the nodes have different ones: %s", strings.Join(versions, ", "))
	} else if len(versions) == 1 {
		d.add("versions", fine, "", "all nodes have %s", versions[0])
	}
}

// checkWitnesses asks witnesses over HTTP: they serve nothing else.
func (d *diagnosis) checkWitnesses(ctx context.Context, all nodes) {
	for _, w := range all.witnesses() {
		n := &node{id: w.NodeID, as: all.best().as, status: &pb.StatusResponse{Node: &pb.Node{HttpAddress: w.HTTPAddress}}}
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		code, text, _, err := n.http(asked, "Ready", http.MethodGet, "/readyz?role=witness", nil)
		cancel()
		switch {
		case err != nil:
			d.addHTTP(n, err)
		case code != http.StatusOK:
			d.add("witness", bad, "see its log", "%s says: %.300s", w.NodeID, bytes.TrimSpace(text))
		default:
			d.addHTTP(n, nil)
		}
	}
}

// addHTTP reports whether a node answers over HTTP; failure is nil if it does.
func (d *diagnosis) addHTTP(n *node, failure error) {
	if failure != nil {
		at := n.status.GetNode().GetHttpAddress()
		d.add("http", bad, "see that --metrics_port is open, and that the node advertises an address at which others reach it",
			"%s does not answer over HTTP at %s: %s", n.id, at, httpCause(at, failure))
		return
	}
	d.add("http", fine, "", "%s answers at %s", n.id, n.status.GetNode().GetHttpAddress())
}

// checkNode checks a node that answers, by its metrics.
func (d *diagnosis) checkNode(n *node, figures scrape, failure error) {
	if n.status == nil || n.status.GetNode().GetHttpAddress() == "" {
		return
	}
	if d.addHTTP(n, failure); failure != nil {
		return
	}
	d.checkCertificates(n, figures, clock.Wall())
	if n.status.GetJournal() == nil {
		return
	}
	switch differ := figures.sum("understudy_settings_differ"); {
	case differ > 0 && d.Serves:
		d.add("settings", warns, "give all nodes the same: masterctl status names them", "%v of %s are not those of the primary", differ, n.id)
	case d.Serves: // without a primary there is nothing to compare them with
		d.add("settings", fine, "", "those of %s agree with the primary's", n.id)
	}
	if wrong := figures.sum("understudy_digest_mismatches_total") + figures.sum("understudy_lease_differences_total"); wrong > 0 {
		d.add("state", bad, "keep the logs of all nodes and report a defect", "%s held a state that was not the primary's %v times", n.id, wrong)
	}
	age := figures.sum("understudy_state_file_age_seconds")
	switch failures := figures.sum("understudy_state_save_failures_total"); {
	case figures.sum("understudy_state_restorable") == 1:
		d.add("state files", fine, "", "a restart of %s goes on from its file, %.0f s old", n.id, age)
	case failures > 0:
		d.add("state files", warns, "see its log and its --state-dir", "%s could not save its state %v times", n.id, failures)
	default:
		d.add("state files", warns, "see its warnings; it saves every 30 s, so look again; if it stays without one, too little of the journal is kept: raise --journal-max-bytes, and let nobody delete its records",
			"the journal goes on from no file of %s", n.id)
	}
	d.checkInterruptions(n.id, figures)
}

// expiresSoon is how long before its end a certificate is warned of, as by the alert.
const expiresSoon = 14 * 24 * time.Hour

// checkCertificates looks when the certificates of a node expire, by the wall clock of this machine.
func (d *diagnosis) checkCertificates(n *node, figures scrape, now time.Time) {
	for _, of := range []struct{ kind, flag string }{{"node", "--tls-cert"}, {"etcd", "--etcd-cert"}} {
		seconds, ok := figures[fmt.Sprintf("understudy_certificate_expiry_timestamp_seconds{kind=%q}", of.kind)]
		if !ok {
			continue
		}
		expires := time.Unix(int64(seconds), 0).UTC()
		help := "write a new one over its " + of.flag + " and the key of that, the key first: no restart is needed"
		text := fmt.Sprintf("that of %s (%s)", n.id, of.flag)
		switch left := expires.Sub(now); {
		case left <= 0:
			d.add("certificates", bad, help, "%s has expired, at %s", text, expires.Format(time.RFC3339))
		case left < expiresSoon:
			d.add("certificates", warns, help, "%s expires in %.1f days, at %s", text, left.Hours()/24, expires.Format(time.RFC3339))
		default:
			d.add("certificates", fine, "", "%s is valid until %s", text, expires.Format(time.RFC3339))
		}
	}
}

func (d *diagnosis) checkMemory(all nodes) {
	const nearlyAll = 0.98
	state := all.best().status.GetState()
	capacity := float64(state.GetCapacityBytes())
	if capacity == 0 && state.GetSegments() > 0 {
		d.add("memory", warns, "masterctl segments shows which: wait, cancel the drain job, or have its clients mount it again",
			"no mounted memory takes puts: all of it is drained, being drained or unmounted")
		return
	}
	if capacity == 0 {
		d.add("memory", warns, "start the clients that mount it", "no memory is mounted, so nothing can be put")
		return
	}
	text, taken := memoryUse(state)
	switch {
	case heldBack(state):
		d.add("memory", warns, heldBackHelp, "%s", text)
	case taken > nearlyAll:
		d.add("memory", warns, "see whether evictions keep up (--eviction_high_watermark_ratio), or what is leased or pinned", "%s", text)
	default:
		d.add("memory", fine, "", "%s", text)
	}
}

// memoryUse says how much of the memory is used and in quarantine, and which share is either.
func memoryUse(state *pb.StateStatus) (text string, taken float64) {
	capacity := float64(state.GetCapacityBytes())
	taken, held := float64(state.GetUsedBytes())/capacity, float64(state.GetQuarantinedBytes())/capacity
	return fmt.Sprintf("%.0f %% of %s are used, and another %.0f %% are in quarantine", 100*max(0, taken-held), cli.SizeText(state.GetCapacityBytes()), 100*held), taken
}

// heldBackHelp is what to do where heldBack reports true.
const heldBackHelp = "wait for it: masterctl ranges --state=quarantined says how long; after an empty start or a refound that is up to 10 min"

// heldBack reports whether so much memory is in quarantine, where nothing can be put, that an
// operator should know.
func heldBack(state *pb.StateStatus) bool {
	const much = 0.25
	return float64(state.GetQuarantinedBytes()) > much*float64(state.GetCapacityBytes()) && state.GetCapacityBytes() > 0
}

// limits are the times that a primary's commits must keep.
type limits struct {
	window   time.Duration // W: how long it may answer after a commit; 0 if it is not known
	failover time.Duration // D: how long the others wait for a commit
}

func limitsOf(figures scrape) limits {
	of := func(name string) time.Duration { return time.Duration(figures.sum(name) * float64(time.Second)) }
	return limits{of("understudy_serve_window_seconds"), of("understudy_failover_after_seconds")}
}

// checkInterruptions looks at how often a node answered nobody in the last minutes. What is
// over is only mentioned.
func (d *diagnosis) checkInterruptions(id string, figures scrape) {
	all := figures.sum("understudy_serve_lapses_total")
	lately, known := figures["understudy_recent_serve_lapses"]
	when := "in the last 10 minutes"
	if !known { // a node of an older version
		lately, when = all, "since its start"
	}
	switch {
	case lately > 0:
		d.add("interruptions", warns, "look at the latency of etcd and at the CPU of the node; its log has the times", "%s answered nobody %s %s, as no commit came through", id, times(lately), when)
	case all > 0:
		d.add("interruptions", fine, "", "%s had none %s, and %s since its start", id, when, cli.Count(uint64(all)))
	}
}

func times(n float64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%v times", n)
}

// commitTimes are how long a primary's commits took.
type commitTimes struct {
	count, mean float64 // the mean in seconds
	slow        float64 // the share that took longer than half of the serve window
	when        string
}

// commitTimesOf returns those of the last minutes, or of a node of an older version those
// since its start.
func commitTimesOf(figures scrape) commitTimes {
	if count, known := figures["understudy_recent_commits"]; known {
		return commitTimes{count, figures["understudy_recent_commit_mean_seconds"], figures["understudy_recent_slow_commits"] / max(count, 1), "in the last 10 minutes"}
	}
	const name = "understudy_commit_duration_seconds"
	count := figures[name+"_count"]
	return commitTimes{count, figures[name+"_sum"] / max(count, 1), figures.slower(name, figures.sum("understudy_serve_window_seconds")/2), "since its start"}
}

// checkCommits compares how long the primary's commits took in the last minutes with W, how
// long it may answer after a commit, and with D, how long the others wait for a commit.
func (d *diagnosis) checkCommits(figures scrape) {
	const often = 0.001
	commits, window, failover := commitTimesOf(figures), figures.sum("understudy_serve_window_seconds"), figures.sum("understudy_failover_after_seconds")
	if commits.count == 0 {
		d.add("commits", fine, "", "the primary has measured none %s", commits.when)
		return
	}
	text := fmt.Sprintf("%.1f ms on average %s", 1000*commits.mean, commits.when)
	if window == 0 {
		d.add("commits", fine, "", "%s; not judged, as the journal does not say yet how long the primary answers after one", text)
		return
	}
	text += fmt.Sprintf("; the primary answers for %.0f ms after each, and is replaced after %.0f ms without one", 1000*window, 1000*failover)
	if commits.slow > often {
		d.add("commits", warns, "look at etcd's disks and network, or raise --failover-after", "%s; %.1f %% took longer than half of the former", text, 100*commits.slow)
		return
	}
	d.add("commits", fine, "", "%s", text)
}
