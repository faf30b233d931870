package service

import (
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Only time in which this node was answering counts: a tick that comes late
// moves all deadlines by as much (a master that was stopped for 15 s must not
// expire its clients for that).
func TestLateTicksDoNotExpireClients(t *testing.T) {
	var now time.Duration
	l := NewLiveness(10*time.Second, 0, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	client := segment.ClientID{1}
	if err := l.Add(Caller{}, client); err != nil {
		t.Fatal(err)
	}
	pass := func(d time.Duration) int {
		now += d
		return expireAt(l, now)
	}
	for range 5 {
		if n := pass(time.Second); n != 0 {
			t.Fatalf("at %v, before the TTL: got %d expired, want 0", now, n)
		}
	}
	if n := pass(15 * time.Second); n != 0 {
		t.Fatalf("the master itself stalled for 15 s: got %d expired, want 0", n)
	}
	for i := range 3 {
		if pass(time.Second) != 0 {
			t.Fatalf("expired %d s after the stall, want 0", i+1)
		}
	}
	if n := pass(time.Second) + pass(time.Second); n != 1 {
		t.Errorf("after 10 s of silence in which the master answered: got %d expired, want 1", n)
	}
	if l.Ping(client) {
		t.Error("a ping of an expired client: got it known, want it to remount first")
	}
	l.retry(client)
	if n := pass(time.Second); n != 1 {
		t.Errorf("a client whose expiry failed: got %d expired at the next tick, want 1", n)
	}
}

// An answer that this node may not give is no silence of its clients: etcd was
// away for 30 s, and they could not be heard.
func TestFencedTimeDoesNotExpireClients(t *testing.T) {
	var now time.Duration
	l := NewLiveness(10*time.Second, 0, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	if err := l.Add(Caller{}, segment.ClientID{1}); err != nil {
		t.Fatal(err)
	}
	second := func(answering bool) int {
		now += time.Second
		silent, _ := l.expire(tick{at: now, answering: answering})
		return len(silent)
	}
	for range 5 {
		second(true)
	}
	for range 30 {
		if second(false) != 0 {
			t.Fatalf("expired at %v, while this node answered nobody; want 0", now)
		}
	}
	for range 4 {
		if second(true) != 0 {
			t.Fatalf("expired at %v, after 5 s and less than 5 s of silence; want 0", now)
		}
	}
	if n := second(true); n != 1 {
		t.Errorf("after 10 s of silence in which this node answered: got %d expired, want 1", n)
	}
}

// Of several clients that are all silent none expires: this node may be cut off.
// As soon as anybody calls, those that are silent have a TTL to come back, less
// the ticks that somebody called in, also if this node is cut off once more before
// they have.
func TestClientsDoNotAllDieAtOnce(t *testing.T) {
	now, calls := time.Duration(0), int64(0)
	l := NewLiveness(10*time.Second, 0, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	for i := range 2 {
		if err := l.Add(Caller{}, segment.ClientID{byte(1 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 {
		now += time.Second
		if silent, alone := l.expire(tick{now, true, calls}); len(silent) != 0 || alone != (now > 5*time.Second) {
			t.Fatalf("at %v: %d expired, alone %t; want none, and alone after 5 s", now, len(silent), alone)
		}
	}
	calls++ // of somebody who lends no memory; and then nobody can again
	for range 60 {
		now += time.Second
		if silent, _ := l.expire(tick{now, true, calls}); len(silent) != 0 {
			t.Fatalf("at %v, cut off for the second time: got %d expired; want 0", now, len(silent))
		}
	}
	for after := 1; after <= 10; after++ {
		calls++
		now += time.Second
		silent, alone := l.expire(tick{now, true, calls})
		want := 0
		if after == 9 { // the tenth tick with a call
			want = 2
		}
		if len(silent) != want || alone {
			t.Fatalf("%d s after the first call: %d expired, want %d; alone %t", after, len(silent), want, alone)
		}
	}
}

// Owners that died are noticed also if the rest of the fleet hardly ever calls:
// else readers would be led to them for ever.
func TestDeadClientsExpireUnderRareCalls(t *testing.T) {
	const ttl = 10 * time.Second
	for _, every := range []int{1, 5, 6, 8, 60} {
		now, calls := time.Duration(0), int64(0)
		l := NewLiveness(ttl, 0, func() time.Duration { return now }, metadata.New(metadata.Options{}))
		for i := range 3 {
			if err := l.Add(Caller{}, segment.ClientID{byte(1 + i)}); err != nil {
				t.Fatal(err)
			}
		}
		expired := 0
		for expired == 0 && calls <= 10 {
			now += time.Second
			if int(now/time.Second)%every == 0 {
				calls++
			}
			silent, _ := l.expire(tick{now, true, calls})
			expired = len(silent)
		}
		if expired != 3 || now < ttl {
			t.Errorf("a call every %d s: %d of 3 expired after %v and %d calls; want all, and not before %v", every, expired, now, calls, ttl)
		}
	}
}

// A client that pings while time is lost gets no more than a full TTL by it.
func TestLostTimeIsNotCreditedTwice(t *testing.T) {
	var now time.Duration
	l := NewLiveness(10*time.Second, 0, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	client := segment.ClientID{1}
	if err := l.Add(Caller{}, client); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		now += time.Second
		l.Ping(client)
		l.expire(tick{now, false, 0})
	}
	for range 9 {
		now += time.Second
		if expireAt(l, now) != 0 {
			t.Fatalf("expired at %v, want 0", now)
		}
	}
	if now += time.Second; expireAt(l, now) != 1 {
		t.Error("the client has not expired a TTL after its last Ping, want it expired")
	}
}

// expireAt is a tick of a node that answers. It returns how many clients expire.
func expireAt(l *Liveness, now time.Duration) int {
	silent, _ := l.expire(tick{at: now, answering: true})
	return len(silent)
}

// A session that is lost for a tick now and then makes no difference: nobody
// calls a node that is cut off, and dead clients of one that is not expire.
func TestSilenceUnderASessionThatFlickers(t *testing.T) {
	for _, every := range []int{3, 4, 5, 6, 8} {
		for _, calling := range []bool{false, true} {
			var now time.Duration
			l := NewLiveness(10*time.Second, 0, func() time.Duration { return now }, metadata.New(metadata.Options{}))
			for i := range 3 {
				if err := l.Add(Caller{}, segment.ClientID{byte(1 + i)}); err != nil {
					t.Fatal(err)
				}
			}
			expired, calls := 0, int64(0)
			for s := 1; s <= 1000; s++ {
				if calling && s%41 == 0 {
					calls++ // of somebody else
				}
				now += time.Second
				silent, _ := l.expire(tick{now, s%every != 0, calls})
				expired += len(silent)
			}
			if expired > 0 != calling {
				t.Errorf("no answers in one second of %d, calls %t: %d clients expired; want some just if there are calls", every, calling, expired)
			}
		}
	}
}

// The owner of an SSD that this master does not know is told to mount its
// segments as long as it pings, and expires when it does not.
func TestWatchedClients(t *testing.T) {
	var now time.Duration
	l := NewLiveness(10*time.Second, 0, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	client := segment.ClientID{1}
	if err := l.Watch(Caller{}, client); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		now += time.Second
		if n := expireAt(l, now); n != 0 || l.Ping(client) {
			t.Fatalf("at %v: %d expired, or it is known; want none, and a client that is not known", now, n)
		}
	}
	for range 9 {
		now += time.Second
		if expireAt(l, now) != 0 {
			t.Fatalf("expires at %v, which is too early; want 0", now)
		}
	}
	if now += time.Second; expireAt(l, now) != 1 {
		t.Errorf("the owner of an SSD, silent for its TTL at %v: got it not expired, want it expired", now)
	}
}

// A client that has expired mounts a further segment before its next Ping. That asks for
// those that went when it expired, and so does the first Ping of a client whose segments
// this node may never have learned of.
func TestClientsAreAskedForAllTheirSegments(t *testing.T) {
	var now time.Duration
	l := NewLiveness(10*time.Second, 0, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	mounts := func(what string, client segment.ClientID, known bool) {
		t.Helper()
		if err := l.Join(Caller{}, client); err != nil {
			t.Fatal(err)
		}
		if got := l.Ping(client); got != known {
			t.Errorf("%s has mounted a segment, and is known: %t, want %t", what, got, known)
		}
	}
	mounts("a new client", segment.ClientID{1}, true)
	for expired := 0; expired == 0; {
		now += time.Second
		expired = expireAt(l, now)
	}
	mounts("a client that had expired", segment.ClientID{1}, false)
	mounts("it once more", segment.ClientID{1}, false)
	if err := l.Add(Caller{}, segment.ClientID{1}); err != nil || !l.Ping(segment.ClientID{1}) {
		t.Errorf("after it has mounted all: %v, or not known; want a known client", err)
	}
	mounts("it with a new segment", segment.ClientID{1}, true)

	l.AskAll()
	if l.Ping(segment.ClientID{1}) {
		t.Error("a client of before is known; want it to be asked")
	}
	mounts("a new client", segment.ClientID{2}, false)
}

// One peer makes known as many clients as its share allows, and takes none of those of
// others; what expires can be taken again.
func TestClientsAreBounded(t *testing.T) {
	now := time.Duration(0)
	l := NewLiveness(time.Second, 0, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	l.Share(share.NewRule("clients", "max-clients", 64, 0.5, 4))
	id := func(peer string, i int) segment.ClientID { return segment.ClientID{peer[0], byte(i)} }
	add := func(peer string, most int) {
		t.Helper()
		for i := range most {
			if err := l.Add(Caller{Peer: peer}, id(peer, i)); err != nil {
				t.Fatalf("client %d of %s: %v, want no error", i, peer, err)
			}
		}
		for what, err := range map[string]error{"Add": l.Add(Caller{Peer: peer}, id(peer, most)), "Watch": l.Watch(Caller{Peer: peer}, id(peer, most))} {
			if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "--max-clients") {
				t.Errorf("%s of one too many of %s: got %v, want Unavailable and what helps", what, peer, err)
			}
		}
		if err := l.Add(Caller{Peer: peer}, id(peer, 0)); err != nil {
			t.Errorf("a known one of %s: got %v, want no error", peer, err)
		}
	}
	add("many", 32)
	add("other", 24) // all but what is kept for peers with few
	add("few", 4)
	now += 2 * time.Second
	expireAt(l, now-time.Second/2)
	for l.Active() > 0 {
		now += time.Second
		l.expire(tick{at: now, answering: true, calls: int64(now)})
	}
	add("many", 32)
}
