package service

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/understudy-store/understudy/segment"
)

// massSilence paces the expiry of clients when many go silent at once: a fault of
// the network is likelier than that of all these hosts, and an emptied cache is worse
// than readers that meet dead addresses. It begins when more than a third of the
// clients, or of the memory, would expire within one TTL, and lasts until no
// client is due. Then clients expire one TTL apart, at most a tenth of the memory
// at a time, longest silent first. Guarded by Liveness.mu.
type massSilence struct {
	on      bool
	next    time.Duration // when the next of them expire
	expired []lapsed      // within the last TTL
	held    int           // clients that are due and have not expired
}

// lapsed is a client that has expired.
type lapsed struct {
	at     time.Duration
	memory uint64 // bytes that it had mounted
}

// Held returns how many clients have been silent for too long and are kept.
func (l *Liveness) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mass.held
}

func (c heard) silence(now time.Duration) time.Duration {
	return now - (c.deadline - c.ttl)
}

// pace returns which of the clients that are due expire now. lost is how much
// of the time since the last tick does not count. Needs the lock.
func (l *Liveness) pace(now, lost time.Duration, due []segment.ClientID) []segment.ClientID {
	m := &l.mass
	m.next += lost
	for i := range m.expired {
		m.expired[i].at += lost
	}
	m.expired = slices.DeleteFunc(m.expired, func(e lapsed) bool { return e.at <= now-l.ttl })
	if m.held = len(due); m.held == 0 {
		m.on = false
		return nil
	}
	memory := l.store.MemoryByOwner()
	total := uint64(0)
	for client := range l.clients {
		total += memory[client]
	}
	if !m.on && l.many(now, memory, total) {
		m.on, m.next = true, now
	}
	switch {
	case !m.on:
	case now < m.next:
		return nil
	default:
		slices.SortFunc(due, func(a, b segment.ClientID) int {
			return cmp.Or(cmp.Compare(l.clients[a].deadline, l.clients[b].deadline), bytes.Compare(a[:], b[:]))
		})
		n, room := 1, total/10-min(total/10, memory[due[0]])
		for ; n < len(due) && memory[due[n]] <= room; n++ {
			room -= memory[due[n]]
		}
		due, m.next = due[:n], now+l.ttl
	}
	for _, client := range due {
		m.expired = append(m.expired, lapsed{now, memory[client]})
	}
	m.held -= len(due)
	return due
}

// many reports whether more than a third of the clients, or of the memory, has
// expired within the last TTL or is about to: silent for half its time. One client
// is not many. Needs the lock.
func (l *Liveness) many(now time.Duration, memory map[segment.ClientID]uint64, total uint64) bool {
	clients, silent, silentMemory := len(l.clients)+len(l.mass.expired), len(l.mass.expired), uint64(0)
	for _, e := range l.mass.expired {
		silentMemory += e.memory
		total += e.memory
	}
	for client, c := range l.clients {
		if c.silence(now) > c.ttl/2 {
			silent++
			silentMemory += memory[client]
		}
	}
	return silent > 1 && (3*silent > clients || silentMemory > total/3)
}
