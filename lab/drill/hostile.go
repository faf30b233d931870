package drill

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/procfs"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/judge"
)

const (
	hostileFor   = 10 * time.Second
	hostileP99   = time.Second // of puts during an attack
	hostileBytes = 512 << 20   // how much more memory than before the primary may take
	repeatedOn   = 4           // replicas of repeatedKey
	longKeys     = 19_580
	longKeyBytes = 4 << 10
	longKeyBatch = 500 // 2 MiB of them
)

// hostilePeers lets peers take all the resources of the primary that they can. It must stay
// primary, answer its clients, and bound its memory. Then one peer takes its share of
// everything.
func hostilePeers(ctx context.Context, e *Env) {
	attacks := e.chosen()
	if len(e.notices) == 0 || len(attacks) == 1 { // else a control whose safeguard another part shows
		e.underLoad(ctx, attacks)
	}
	if !e.noticed() {
		e.greed(ctx)
	}
}

// underLoad lets peers use as much CPU and memory of the primary as they can.
func (e *Env) underLoad(ctx context.Context, attacks []attack) {
	e.episode(ctx, episode{work: &work{exact: true}}, func(ctx context.Context) {
		p := e.working(ctx)
		defer e.putKeys(ctx, slices.ContainsFunc(attacks, func(a attack) bool { return a.long })).Close()
		calm := rss(p.primary)
		for _, a := range attacks {
			if e.withstands(ctx, p.primary, a, calm); e.noticed() {
				return
			}
			e.result.Rounds++
		}
		_, term := e.primary(ctx, 0)
		e.result.check("no failover", term == p.term, "term %d, before %d", term, p.term)
		e.allLive()
		e.bounded()
	})
}

// putKeys puts the object that is asked for again and again, and objects with long keys, so
// that patterns have much to search and answers are large. What controls need does without
// those, and ends sooner. The client that it returns must live as long as the first object.
func (e *Env) putKeys(ctx context.Context, long bool) *bulk {
	b := e.newBulk()
	// A short question has a long answer: the object is on a segment with a long endpoint. Both
	// have a single byte, so no object of the recorded clients fits there.
	s := client.Segment{ID: uuid.New(), Name: "long", Base: 1 << 40, Size: 1, Endpoint: lengthen("long:1", longNameBytes), Protocol: "tcp"}
	do(b.MountSegment(ctx, s))
	do(b.putAll(ctx, []string{repeatedKey}, s.Size, client.PutConfig{PreferredSegments: []string{s.Name}}))
	for n := 0; long && n < longKeys; n += longKeyBatch {
		var keys []string
		for i := n; i < min(n+longKeyBatch, longKeys); i++ {
			keys = append(keys, fmt.Sprintf("%s/%d", strings.Repeat("x", longKeyBytes), i))
		}
		do(b.putAll(ctx, keys, bulkSize, client.PutConfig{}))
	}
	return b
}

// withstands runs an attack on a primary, and measures it. calm is how much memory the primary
// took before all attacks, in bytes.
func (e *Env) withstands(ctx context.Context, primary *cluster.Node, a attack, calm uint64) {
	forgetPeak(primary)
	address, open := primary.RPC, descriptors(primary)
	if a.at != nil {
		address = a.at(primary)
	}
	e.underAttack(ctx, address, a)
	to := e.load.Now()
	from := to - e.attackFor() // not before: calls beside an attacker that still starts would hide slow ones
	e.connectionsEnd(ctx, primary, open, a.what)
	e.bears(primary, a.what, from, to, calm)
}

// bears checks how long puts took under an attack, and how much memory the primary.
func (e *Env) bears(primary *cluster.Node, what string, from, to time.Duration, calm uint64) {
	puts, reads := e.load.p99(from, to, judge.PutStart, judge.PutEnd), e.load.p99(from, to, judge.Get, judge.Exist)
	e.result.check("puts are answered", puts > 0 && puts <= hostileP99, "under %s the p99 of puts was %v, at most %v is expected", what, puts, hostileP99)
	most := must(must(procfs.NewProc(primary.PID)).NewStatus()).VmHWM
	e.result.check("memory", most <= calm+hostileBytes, "the primary took %d MiB at most under %s, %d before all attacks; %d more are expected at most", most>>20, what, calm>>20, hostileBytes>>20)
	e.did("%s: p99 of puts %v, of reads %v; %d MiB at most, %d before all attacks", what, puts.Round(time.Millisecond), reads.Round(time.Millisecond), most>>20, calm>>20)
}

// forgetPeak resets the peak of a node's memory, so that the earlier one does not count.
func forgetPeak(n *cluster.Node) {
	do(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", n.PID), []byte("5"), 0))
}

func rss(n *cluster.Node) uint64 { return must(must(procfs.NewProc(n.PID)).NewStatus()).VmRSS }
