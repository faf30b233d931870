package service

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A fleet is some clients with 1 MiB of memory each, which go silent and come
// back second by second.
type fleet struct {
	*Liveness
	t     *testing.T
	now   time.Duration
	calls int64
	state *metadata.Store
}

func newFleet(t *testing.T, clients int) *fleet {
	t.Helper()
	params := metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}
	f := &fleet{t: t, state: metadata.New(metadata.Options{})}
	f.apply(&metadata.TermStart{Term: 1, Params: params})
	for i := range byte(clients) {
		f.mount(1+i, 1, string(rune('A'+i)))
	}
	f.Liveness = NewLiveness(10*time.Second, 0, func() time.Duration { return f.now }, f.state)
	return f
}

// mount has a client lend memory.
func (f *fleet) mount(client, id byte, endpoint string) {
	f.t.Helper()
	e, err := f.state.PrepareMount(segment.Spec{
		ID: segment.ID{client, id}, Name: "a", Base: uint64(id) << 32, Size: 1 << 20, Endpoint: endpoint, Client: segment.ClientID{client},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.apply(e)
}

func (f *fleet) apply(change metadata.Change) {
	f.t.Helper()
	c := metadata.Commit{Seq: f.state.Position().Seq + 1, Term: 1, Changes: []metadata.Change{change}}
	if _, err := f.state.Apply(&c, nil); err != nil {
		f.t.Fatal(err)
	}
}

// takeOver begins a term in which a Ping may hang for 30 s.
func (f *fleet) takeOver() {
	f.Liveness = NewLiveness(10*time.Second, 30*time.Second, func() time.Duration { return f.now }, f.state)
}

// second passes a second in which somebody calls, and all clients ping but those
// with a number from silent on. It returns how many expire.
func (f *fleet) second(silent int) int {
	f.calls++
	f.now += time.Second
	for client := range f.clients {
		if int(client[0]) < silent {
			f.Ping(client)
		}
	}
	expired, _ := f.expire(tick{f.now, true, f.calls})
	return len(expired)
}

// wantAt checks how many of the clients expire in each of some seconds.
func (f *fleet) wantAt(what string, silent int, want ...int) {
	f.t.Helper()
	for i, n := range want {
		if got := f.second(silent); got != n {
			f.t.Fatalf("%s: after %d s %d clients expire, want %d", what, i+1, got, n)
		}
	}
}

func times(n int) []int { return make([]int, n) }

// When all are silent and readers call, a tenth of the memory goes at a time, one
// TTL apart; whoever comes back meanwhile has lost nothing.
func TestMassSilenceDoesNotEmptyTheCache(t *testing.T) {
	f := newFleet(t, 30)
	f.wantAt("all ping", 31, times(20)...)
	f.wantAt("all silent", 0, times(9)...)
	f.wantAt("the first tenth", 0, 3)
	if got := f.Held(); got != 27 {
		t.Errorf("%d clients are held, want 27", got)
	}
	f.wantAt("a TTL later", 0, append(times(9), 2)...)
	f.wantAt("all are back", 31, times(30)...)
	if f.Active() != 25 || f.Held() != 0 {
		t.Errorf("%d clients are left, want 25; %d are held, want none", f.Active(), f.Held())
	}
	f.wantAt("one is silent", 30, append(times(9), 1)...)
}

// A few that die together expire at once, as each of them would; so does one of
// two.
func TestFewSilentClientsExpireAtOnce(t *testing.T) {
	f := newFleet(t, 30)
	f.wantAt("a third is silent", 21, append(times(9), 10)...)
	f = newFleet(t, 2)
	f.wantAt("one of two", 2, append(times(9), 1)...)
}

// Deaths that come one after the other within a TTL count together.
func TestMassSilenceInSteps(t *testing.T) {
	f := newFleet(t, 30)
	f.wantAt("six", 25, times(6)...)
	f.wantAt("six more", 19, append(times(3), 6)...)
	f.wantAt("a tenth of the others", 19, append(times(5), 2)...)
}

// Time in which this node cannot hear anybody does not count here either.
func TestMassSilenceStopsWithTheTicks(t *testing.T) {
	f := newFleet(t, 30)
	f.wantAt("all silent", 0, append(times(9), 3)...)
	f.now += 60 * time.Second
	f.wantAt("after a stall of this node", 0, append(times(9), 2)...)
}

// A new primary gives the clients that it knows time: a Ping to the primary before
// may hang for as long as they wait for answers. The first Ping ends that.
func TestGraceOfATakeover(t *testing.T) {
	takeover := func() *fleet {
		f := newFleet(t, 4)
		f.takeOver()
		return f
	}
	takeover().wantAt("one is silent from the takeover on", 4, append(times(39), 1)...)
	f := takeover()
	f.wantAt("a Ping hangs for 30 s", 4, times(31)...)
	f.wantAt("it is back", 5, 0)
	f.wantAt("silent after a Ping", 4, append(times(9), 1)...)
	f = takeover()
	f.wantAt("one is silent", 4, 0)
	f.Displace(segment.ClientID{4}, Caller{})
	f.wantAt("its endpoint has a new owner", 4, 0, 1)
}

// Who was displaced stays so over a takeover: the owners of an endpoint but the last one
// are silent for no more than 3 s beyond the Ping that may hang.
func TestEndpointsAfterATakeover(t *testing.T) {
	f := newFleet(t, 4)
	f.mount(1, 2, "D") // in place of 4
	f.takeOver()
	f.wantAt("another has its endpoint", 4, append(times(32), 1)...)
	f = newFleet(t, 4)
	f.mount(1, 2, "D")
	f.takeOver()
	f.wantAt("a Ping hangs for 30 s", 4, times(31)...)
	f.wantAt("it is back: both live", 5, 0)
	f.wantAt("silent after a Ping", 4, append(times(9), 1)...)
	f = newFleet(t, 4)
	f.mount(4, 2, "A")
	f.takeOver()
	f.wantAt("it has the endpoint of another", 4, append(times(39), 1)...)
	f = newFleet(t, 4)
	f.mount(1, 2, "D")
	f.mount(4, 3, "D")
	f.takeOver()
	f.wantAt("it has got its endpoint back", 4, append(times(39), 1)...)
}

// An endpoint belongs to one process: who is silent at one that another has goes
// after 3 s; who pings is left alone.
func TestDisplacedClients(t *testing.T) {
	f := newFleet(t, 4)
	f.wantAt("one is silent", 4, 0)
	for client := range f.clients {
		f.Displace(client, Caller{})
	}
	f.wantAt("displaced", 4, 0, 1)
	f.wantAt("the others", 4, times(8)...)
	f.wantAt("silent later on", 3, append(times(9), 1)...)
	f = newFleet(t, 4)
	f.wantAt("one is silent", 4, times(5)...)
	f.Displace(segment.ClientID{4}, Caller{})
	f.wantAt("silent for long when displaced", 4, 1)
}
