package service

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Only time in which this node was answering counts: a tick that comes late
// moves all deadlines by as much (a master that was stopped for 15 s must not
// expire its clients for that).
func TestLateTicksDoNotExpireClients(t *testing.T) {
	var now time.Duration
	l := NewLiveness(10*time.Second, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	client := segment.ClientID{1}
	if err := l.Add(client); err != nil {
		t.Fatal(err)
	}
	tick := func(d time.Duration) int {
		now += d
		return len(l.expire(true))
	}
	for range 5 {
		if tick(time.Second) != 0 {
			t.Fatal("expired after less than its TTL")
		}
	}
	if tick(15*time.Second) != 0 {
		t.Fatal("expired for the master's own stall")
	}
	for i := range 3 {
		if tick(time.Second) != 0 {
			t.Fatalf("expired %d s after the stall", i+1)
		}
	}
	if tick(time.Second)+tick(time.Second) != 1 {
		t.Error("does not expire after 10 s of silence in which the master answered")
	}
	if l.Touch(client) {
		t.Error("an expired client is touched alive")
	}
	l.retry(client)
	if tick(time.Second) != 1 {
		t.Error("a client whose expiry failed does not come up again")
	}
}

// An answer that this node may not give is no silence of its clients: etcd was
// away for 30 s, and they could not be heard.
func TestFencedTimeDoesNotExpireClients(t *testing.T) {
	var now time.Duration
	l := NewLiveness(10*time.Second, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	if err := l.Add(segment.ClientID{1}); err != nil {
		t.Fatal(err)
	}
	tick := func(answering bool) int {
		now += time.Second
		return len(l.expire(answering))
	}
	for range 5 {
		tick(true)
	}
	for range 30 {
		if tick(false) != 0 {
			t.Fatalf("expired at %v, while this node answered nobody", now)
		}
	}
	for range 4 {
		if tick(true) != 0 {
			t.Fatalf("expired at %v, after 5 s and less than 5 s of silence", now)
		}
	}
	if tick(true) != 1 {
		t.Error("does not expire after 10 s of silence in which this node answered")
	}
}

// Of several clients that are all silent none expires: this node may be cut off.
// As soon as one is heard of, the others have what is left of their time.
func TestClientsDoNotAllDieAtOnce(t *testing.T) {
	var now time.Duration
	l := NewLiveness(10*time.Second, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	first, second := segment.ClientID{1}, segment.ClientID{2}
	for _, c := range []segment.ClientID{first, second} {
		if err := l.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 {
		now += time.Second
		if n := len(l.expire(true)); n != 0 || l.isAlone() != (now > 5*time.Second) {
			t.Fatalf("at %v: %d expired, alone %t", now, n, l.isAlone())
		}
	}
	left := 0
	for ; left < 10; left++ {
		if !l.Touch(first) {
			t.Fatal("the one that is heard of is not known any more")
		}
		now += time.Second
		if len(l.expire(true)) > 0 {
			break
		}
		if l.isAlone() {
			t.Fatal("alone with a client that pings")
		}
	}
	if left != 4 || l.Touch(second) || !l.Touch(first) {
		t.Errorf("the silent one had %d s left, want 4", left)
	}
}

// The owner of an SSD that this master does not know is told to mount its
// segments as long as it pings, and expires when it does not.
func TestWatchedClients(t *testing.T) {
	var now time.Duration
	l := NewLiveness(10*time.Second, func() time.Duration { return now }, metadata.New(metadata.Options{}))
	client := segment.ClientID{1}
	if err := l.Watch(client); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		now += time.Second
		if n := len(l.expire(true)); n != 0 || l.Touch(client) {
			t.Fatalf("at %v: %d expired, or it is known", now, n)
		}
	}
	for range 9 {
		now += time.Second
		if len(l.expire(true)) != 0 {
			t.Fatalf("expires at %v, which is too early", now)
		}
	}
	if now += time.Second; len(l.expire(true)) != 1 {
		t.Error("does not expire")
	}
}

func TestClientsAreBounded(t *testing.T) {
	l := NewLiveness(time.Second, func() time.Duration { return 0 }, metadata.New(metadata.Options{}))
	for i := range MaxClients {
		if err := l.Add(segment.ClientID{byte(i), byte(i >> 8), byte(i >> 16)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Add(segment.ClientID{15: 1}); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("one too many: %v", err)
	}
	if err := l.Watch(segment.ClientID{15: 1}); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("one too many to watch: %v", err)
	}
	if err := l.Add(segment.ClientID{1}); err != nil {
		t.Errorf("a known one: %v", err)
	}
}
