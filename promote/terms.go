package promote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

// A TermRecord describes a term for operators. Only a pause of takeover depends on it: the
// newest record that names a node says which node served last.
type TermRecord struct {
	Term       metadata.Term `json:"term"`
	NodeID     string        `json:"node_id,omitempty"`      // empty while nobody has served in the term
	Began      string        `json:"began,omitempty"`        // wall time, RFC 3339
	Why        string        `json:"why"`                    // why the node became primary
	Gap        int64         `json:"gap_ms"`                 // how long no node answered before the term
	GapAtLeast bool          `json:"gap_at_least,omitempty"` // the gap may be longer: the node did not see the previous primary commit
	Ended      string        `json:"ended,omitempty"`        // wall time, RFC 3339; empty if the node did not record it
	End        string        `json:"end,omitempty"`          // how it ended
	Left       int64         `json:"left_ms,omitempty"`      // from the end of calls until the handover was committed

	Interruptions
}

// Interruptions count the times in a term at which its node answered nobody, because no
// commit came through, and then went on.
type Interruptions struct {
	Count   int   `json:"interruptions,omitempty"`
	Total   int64 `json:"interrupted_ms,omitempty"`
	Longest int64 `json:"longest_interruption_ms,omitempty"`
}

// interrupted counts an interruption. Only watchRight calls it; recordInterruptions writes it.
func (t *Term) interrupted(lasted time.Duration) {
	var i Interruptions
	if before := t.interruptions.Load(); before != nil {
		i = *before
	}
	i.Count, i.Total, i.Longest = i.Count+1, i.Total+lasted.Milliseconds(), max(i.Longest, lasted.Milliseconds())
	t.interruptions.Store(&i)
	select {
	case t.counted <- struct{}{}:
	default: // what is to be written already has this one, too
	}
}

// keptTerms is how many records of terms are kept.
const keptTerms = 100

// Terms returns the records of the last terms, oldest first. A record that cannot be
// read has only its term. A record without an end gets the reason for the next term as End.
func (n *Node) Terms(ctx context.Context) ([]TermRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := n.Client.Do(ctx, n.newestTerms())
	if err != nil {
		return nil, fmt.Errorf("reading the history of terms: %w", err)
	}
	return termsOf(n.Layout, resp.Get().Kvs), nil
}

// termsOf decodes what newestTerms reads.
func termsOf(layout journal.Layout, kvs []*mvccpb.KeyValue) (records []TermRecord) {
	for _, kv := range slices.Backward(kvs) {
		var r TermRecord
		if json.Unmarshal(kv.Value, &r) != nil {
			r = TermRecord{Why: "the record cannot be read"}
		}
		if number, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), layout.Terms()), 10, 32); err == nil {
			r.Term = metadata.Term(number)
		}
		if len(records) > 0 {
			before := &records[len(records)-1]
			before.End = cmp.Or(before.End, r.Why)
			if before.NodeID != r.NodeID {
				r.Gap += before.Left // until the handover was committed
			}
		}
		records = append(records, r)
	}
	return records
}

// recordWait is how long noteLeader tries to read the record of a term before it logs the
// new primary without the reason.
const recordWait = 2 * time.Second

// noteLeader logs once when another node serves, with the reason from the term's record.
func (n *Node) noteLeader(ctx context.Context, l Leader) {
	if l.State != Serving || l.NodeID == n.followed.NodeID && l.Term == n.followed.Term {
		return
	}
	var r TermRecord
	_, since := n.leaderSeen()
	read, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	if resp, err := n.Client.Get(read, n.Layout.Term(l.Term)); err == nil && len(resp.Kvs) == 1 {
		_ = json.Unmarshal(resp.Kvs[0].Value, &r)
	}
	if r.NodeID != l.NodeID && n.Clock()-since < recordWait {
		return // the next look tries again
	}
	n.followed = l
	n.Log.Info().Str("primary", l.NodeID).Str("address", l.RPC).Uint64("term", uint64(l.Term)).Str("why", r.Why).
		Dur("gap", time.Duration(r.Gap)*time.Millisecond).Bool("gap_at_least", r.GapAtLeast).Msg("another node serves")
}

// newestTerms reads the records that are kept, newest first.
func (n *Node) newestTerms(options ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(n.Layout.Terms(), append(options, clientv3.WithPrefix(), clientv3.WithLimit(keptTerms),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))...)
}

// beginning is the record of a term that is about to serve, or serves.
func (t *Term) beginning() TermRecord {
	return TermRecord{Term: t.Number, NodeID: t.node.ID, Began: wallTime(0), Why: t.why, Gap: t.gap.Milliseconds(), GapAtLeast: t.gapAtLeast}
}

// record completes the record of a term that has begun to serve, deletes those that are
// too old, and then records interruptions, until the context ends. The takeover does not
// depend on it: if it fails, the record stays as the announcement wrote it.
func (t *Term) record(ctx context.Context) error {
	t.recorded = t.beginning()
	_ = t.node.writeTerm(ctx, t.recorded)
	t.node.trimTerms(ctx)
	return t.recordInterruptions(ctx, t.node.writeTerm)
}

// recordInterruptions writes each interruption at once, as other nodes show what they saw of it
// by the record, until the context ends. What cannot be written is tried again each second.
func (t *Term) recordInterruptions(ctx context.Context, write func(context.Context, TermRecord) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.counted:
		}
		r := t.recorded
		r.Interruptions = *t.interruptions.Load()
		for write(ctx, r) != nil {
			if err := clock.Sleep(ctx, paceEvery); err != nil {
				return err
			}
			r.Interruptions = *t.interruptions.Load()
		}
		t.recorded = r
	}
}

// trimTerms deletes the records of terms that are too old.
func (n *Node) trimTerms(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	kept, err := n.Client.Do(ctx, n.newestTerms(clientv3.WithKeysOnly()))
	if err == nil && len(kept.Get().Kvs) == keptTerms {
		_, err = n.Client.Delete(ctx, n.Layout.Term(0), clientv3.WithRange(string(kept.Get().Kvs[keptTerms-1].Key)))
	}
	if err != nil {
		n.Log.Debug().Err(err).Msg("old records of terms were not deleted")
	}
}

// recordEnd writes how the term ended, if it has served.
func (t *Term) recordEnd(ctx context.Context, err error) {
	r := &t.recorded
	if r.Term == 0 {
		return
	}
	r.Ended, r.End, r.Left = wallTime(t.node.silentFor()), cmp.Or(t.end, t.endedBy(err)), (t.left + time.Millisecond - 1).Milliseconds()
	if i := t.interruptions.Load(); i != nil {
		r.Interruptions = *i
	}
	_ = t.node.writeTerm(ctx, *r)
}

// endedBy says why a term ended with an error. If no commit had come through before, that is
// the cause: that another node was elected then only followed from it.
func (t *Term) endedBy(err error) string {
	o := t.lapsed.Load()
	switch {
	case err == nil:
		return ""
	case o == nil:
		return err.Error()
	default:
		return fmt.Sprintf("%s; then: %v", o.Reason, err)
	}
}

// writeTerm writes a record. It also logs an error, for callers that go on regardless.
func (n *Node) writeTerm(ctx context.Context, r TermRecord) error {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	value, err := json.Marshal(r)
	if err == nil {
		_, err = n.Client.Put(ctx, n.Layout.Term(r.Term), string(value))
	}
	if err != nil {
		n.Log.Debug().Err(err).Msg("the term was not recorded")
	}
	return err
}

// wallTime returns the wall time of a while ago, for people.
func wallTime(ago time.Duration) string { return clock.Wall().Add(-ago).UTC().Format(time.RFC3339Nano) }

// silentFor returns for how long this node has answered nobody.
func (n *Node) silentFor() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.answers {
		return 0
	}
	return n.Clock() - n.answersSince
}

// A lastPrimary is the node that served last, as far as this node knows. Terms that led to
// nothing may have begun since, and committed.
type lastPrimary struct {
	leader  Leader        // zero if this node has seen none
	learned time.Duration // by the clock: when this node had learned of its newest commit, as of when it was last seen to serve
	inTouch bool          // with etcd since before that: this node learned of it at once
	wall    int64         // wall time of that commit, in ms since 1970; 0 if it is not known
	why     string        // reason for the first election after it; empty for none yet
}

// remember notes a leader that serves.
func (n *Node) remember(l Leader, f *follower.Follower) {
	n.last = lastPrimary{leader: l, learned: n.Clock()}
	if head, learned := f.Learned(); head.Term == l.Term {
		n.last.learned, n.last.wall = learned, head.Wall
	}
}

// lookBack fills in which primary was before an election, and the reason for it. A node that
// has not seen the leader of the last term was away meanwhile: it knows no more than the head.
func (n *Node) lookBack(c *candidate) {
	previous := n.previousLeader()
	if c.last = n.last; c.last == (lastPrimary{}) || previous.Term < c.before.Term {
		c.last = lastPrimary{leader: previous}
		c.last.leader.Term = c.before.Term
	}
	if c.last.leader.Term >= c.before.Term { // it made the last commit
		c.last.learned, c.last.wall = c.learned, c.before.Wall
	}
	if c.why = c.last.why; c.why == "" || c.empty {
		c.why = reason(c.before, c.last.leader, c.empty)
	}
}

// measureGap notes how long no node has answered before the term. If this node was the
// previous primary, it knows when it answered last. Otherwise it counts from when it
// learned of that one's last commit. If it did not see that primary commit, it may have learned
// of the commit late, or the primary may have ended earlier: then the gap is a lower bound. The
// wall clocks correct a gap that is longer by them, unless this node was in touch with etcd all
// the time: nobody may have watched, or etcd may have been away from all.
func (t *Term) measureGap() {
	n := t.node
	if t.before.Seq == 0 {
		return
	}
	previous := t.last.leader.Term
	t.gap, t.gapAtLeast = n.Clock()-t.last.learned, n.watched < previous
	if n.led == previous {
		t.gap, t.gapAtLeast = max(t.gap, n.silentFor()), false
		return
	}
	least := t.gap
	if !t.gapAtLeast {
		least += clocksDiffer
	}
	if gap := clock.Wall().Sub(time.UnixMilli(t.last.wall)); t.last.wall > 0 && gap > least && (t.gapAtLeast || !t.last.inTouch && t.before.Heir != n.ID) {
		t.gap, t.gapAtLeast = gap, false
	}
}

// clocksDiffer is how far apart the wall clocks of two machines may be: a gap by wall clocks
// replaces one that a node measured only if it is longer by more than this.
const clocksDiffer = 500 * time.Millisecond

// reason returns why a term begins, as far as the head before it and the previous
// leader show.
func reason(before journal.Head, leader Leader, empty bool) string {
	previous := cmp.Or(leader.NodeID, "the primary before")
	switch {
	case before.Seq == 0:
		return "there was no journal"
	case empty:
		return "no node held the previous state; started empty"
	case before.Clean && before.Heir != "":
		return previous + " handed over"
	case before.Clean:
		return previous + " stopped"
	case leader.NodeID == "":
		return "there was no leader key"
	}
	return fmt.Sprintf("the leader key of %s was gone: its session had ended, or somebody deleted it", previous)
}
