package metadata

import (
	"sync"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/ordered"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// RequestsKept is for how long an applied removal, or a put that another one has
// replaced, is remembered by its request id, in milliseconds of cluster time. A caller
// that lost the answer repeats its call within seconds; while there is no primary no
// cluster time passes.
const RequestsKept Time = 60_000

// MaxRequests bounds the runs that are remembered: consecutive ids of one commit, as
// those of a batch, count as one. Beyond it numbered removals are refused.
const MaxRequests = 1 << 20

// maxRun bounds the ids of a run.
const maxRun = 1 << 16

// firstRulesRequests is how many removals were remembered under FirstRules,
// which forgot the oldest by count.
const firstRulesRequests = 1 << 17

// A requestRun is what is remembered of removals and replaced puts: consecutive
// request ids that were applied at one time.
type requestRun struct {
	first uint64
	count uint64
	at    Time
}

// A requestLog remembers the request ids of the removals applied last, so that a repeated
// call gets the answer of the first one instead of removing a later object. It also
// remembers those of puts that another put has replaced before their end, so that a
// repeated call neither puts once more nor is told that it changed nothing. It is part of
// the state. The methods that change it return by how much the digest changes.
type requestLog struct {
	mu    sync.Mutex // guards all; a leaf
	runs  []requestRun
	known ordered.Map[uint64, uint64] // first id of a run -> count
	byAge bool
}

// add remembers a request, unless it is known.
func (l *requestLog) add(request uint64, now Time) (change Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.knows(request) {
		return 0
	}
	n := len(l.runs)
	if l.byAge && n > 0 && l.runs[n-1].at == now && l.runs[n-1].count < maxRun && l.runs[n-1].first+l.runs[n-1].count == request {
		l.runs[n-1].count++
		l.known.Set(l.runs[n-1].first, l.runs[n-1].count)
		return l.term(request, now)
	}
	change = l.append(requestRun{request, 1, now})
	if !l.byAge && len(l.runs) > firstRulesRequests {
		change += l.forget()
	}
	return change
}

func (l *requestLog) append(run requestRun) Digest {
	l.runs = append(l.runs, run)
	l.known.Set(run.first, run.count)
	return l.sum(run)
}

// forget drops the oldest run.
func (l *requestLog) forget() Digest {
	run := l.runs[0]
	if l.runs = l.runs[1:]; len(l.runs) == 0 {
		l.runs = nil
	}
	l.known.Delete(run.first)
	return -l.sum(run)
}

// expire forgets what is old enough.
func (l *requestLog) expire(now Time) (change Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.byAge && len(l.runs) > 0 && l.runs[0].at <= now-RequestsKept {
		change += l.forget()
	}
	return change
}

// keepByAge begins to forget by age instead of by count.
func (l *requestLog) keepByAge(now Time) (change Digest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.runs {
		change -= l.sum(l.runs[i])
		l.runs[i].at = now
	}
	l.byAge = true
	for i := range l.runs {
		change += l.sum(l.runs[i])
	}
	return change
}

// has reports whether a request is known. It fails with Unavailable for one that is not
// when there is no room.
func (l *requestLog) has(request uint64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.knows(request) {
		return true, nil
	}
	if l.byAge && len(l.runs) >= MaxRequests {
		return false, errs.New(errs.Unavailable, "Remove",
			"%d removals of the last minute are remembered by request id, which is the most there can be; nothing was changed, try again later", len(l.runs))
	}
	return false, nil
}

// hasRoom reports whether one more can be remembered.
func (l *requestLog) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs) < MaxRequests
}

func (l *requestLog) knows(request uint64) bool {
	first, count, found := l.known.Until(request)
	return found && request-first < count
}

func (l *requestLog) sum(run requestRun) (sum Digest) {
	for i := range run.count {
		sum += l.term(run.first+i, run.at)
	}
	return sum
}

func (l *requestLog) term(request uint64, at Time) Digest {
	h := mix(seedRequest, request)
	if l.byAge {
		h = mix(h, uint64(at))
	}
	return finish(h)
}

// encode codes the requests, the oldest first.
func (l *requestLog) encode(c *binenc.Coder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	binenc.CodeSlice(c, &l.runs, 8, func(run *requestRun) { l.codeRun(c, run) })
}

func (l *requestLog) codeRun(c *binenc.Coder, run *requestRun) {
	if c.CodeUint64(&run.first); !l.byAge {
		run.count = 1
		return
	}
	binenc.CodeUvarintMax(c, &run.count, "a run of removals", maxRun)
	binenc.CodeVarint(c, &run.at)
}

func (l *requestLog) decode(c *binenc.Coder, byAge bool) (change Digest) {
	l.byAge = byAge
	var runs []requestRun
	binenc.CodeSlice(c, &runs, 8, func(run *requestRun) { l.codeRun(c, run) })
	for i, run := range runs {
		switch {
		case l.knows(run.first) || run.count == 0 || run.first+run.count < run.first:
			c.Fail("%d requests from %d on, which is none or stands twice", run.count, run.first)
		case byAge && i > 0 && run.at < runs[i-1].at:
			c.Fail("a request at %d behind one at %d", run.at, runs[i-1].at)
		}
		if c.Err() != nil {
			return 0
		}
		change += l.append(run)
	}
	return change
}
