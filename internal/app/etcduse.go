package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/internal/clock"
)

// etcdUse has the size of etcd's database, and knows which of its endpoints answer. It asks
// etcd at most once a second.
type etcdUse struct {
	client  *clientv3.Client
	members []string // their endpoints
	clock   clock.Clock
	quota   int64 // of an etcd that this node runs
	owned   bool

	size  atomic.Int64
	told  atomic.Int64             // the least quota that its members report; those before etcd 3.6 report none
	asked atomic.Int64             // by the clock, in seconds
	full  atomic.Bool              // a member has raised its alarm NOSPACE: etcd takes no writes
	heard atomic.Pointer[etcdSays] // at the last look; nil before the first

	silent absences // its endpoints that do not answer
}

func newEtcdUse(a *App, e *etcdConn) *etcdUse {
	return &etcdUse{
		client: e.journal, members: e.members, clock: a.clock, quota: a.cfg.HA.EtcdQuotaBytes, owned: a.cfg.HA.Embedded(),
		silent: absences{
			gone: func(name string, cause error) {
				a.log.Warn().Str("endpoint", name).Err(cause).Msg("an endpoint of etcd does not answer")
			},
			back: func(name string, lasted time.Duration) {
				a.log.Info().Str("endpoint", name).Dur("lasted", lasted).Msg("an endpoint of etcd answers again")
			},
		},
	}
}

// etcdSays is what members of etcd answered, together.
type etcdSays struct {
	versions, alarms []string // sorted, each once
	longest          time.Duration
}

// says returns what the members answered when they were asked last: nothing if none did.
func (u *etcdUse) says() (said etcdSays) {
	if last := u.heard.Load(); last != nil {
		said = *last
	}
	return said
}

func (s *etcdSays) add(st *clientv3.StatusResponse, took time.Duration) {
	s.longest = max(s.longest, took)
	s.versions, s.alarms = append(s.versions, st.Version), append(s.alarms, st.Errors...)
}

func distinct(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

func (u *etcdUse) endpointWarnings() (list []string) {
	for _, endpoint := range u.silent.away() {
		list = append(list, fmt.Sprintf("etcd does not answer at %s; start that member again: without more than half of its members etcd answers nobody", endpoint))
	}
	return list
}

// quotaWarnings says that an etcd that others run has reached 80 % of its quota, as the alert
// UnderstudyEtcdNearQuota does. One that a node runs itself makes space later, at 90 %.
func quotaWarnings(size, quota uint64) []string {
	if quota == 0 || size < quota-quota/5 {
		return nil
	}
	return []string{fmt.Sprintf("etcd's database has %d of the %d MiB of its quota, beyond which it refuses all changes: compact and defragment it, or raise its --quota-backend-bytes",
		size>>20, quota>>20)}
}

func (u *etcdUse) sizes(ctx context.Context) (size, quota uint64) {
	now := 1 + int64(u.clock()/time.Second)
	if last := u.asked.Load(); now != last && u.asked.CompareAndSwap(last, now) {
		if size, told := u.largest(ctx); size > 0 {
			u.size.Store(size)
			u.told.Store(told)
		}
	}
	if u.owned {
		return uint64(u.size.Load()), uint64(u.quota)
	}
	return uint64(u.size.Load()), uint64(u.told.Load())
}

// last returns what sizes has found out so far.
func (u *etcdUse) last() (size, quota uint64) { return uint64(u.size.Load()), uint64(u.quota) }

const (
	sizeTimeout = time.Second // for all members of etcd
	sizeAsks    = 8           // members that are asked at once
)

// largest asks all members of etcd how large their database is, and returns the largest
// size: etcd refuses writes when one of them reaches its quota. The quota is the least that
// a member reports. Both are 0 if none answers.
func (u *etcdUse) largest(asker context.Context) (size, quota int64) {
	ctx, cancel := context.WithTimeout(asker, sizeTimeout)
	defer cancel()
	answers, misses := make([]*clientv3.StatusResponse, len(u.members)), make([]error, len(u.members))
	took := make([]time.Duration, len(u.members))
	var asks errgroup.Group
	asks.SetLimit(sizeAsks)
	for i, endpoint := range u.members {
		asks.Go(func() error {
			began := u.clock()
			answers[i], misses[i] = u.client.Status(ctx, endpoint)
			took[i] = u.clock() - began
			return nil
		})
	}
	_ = asks.Wait() // a member that is down has no size
	outcome, said := make(map[string]error, len(u.members)), &etcdSays{}
	for i, endpoint := range u.members {
		if outcome[endpoint] = misses[i]; misses[i] != nil {
			continue
		}
		said.add(answers[i], took[i])
		size = max(size, answers[i].DbSize)
		if q := answers[i].DbSizeQuota; q > 0 && (quota == 0 || q < quota) {
			quota = q
		}
	}
	if size > 0 {
		said.versions, said.alarms = distinct(said.versions), distinct(said.alarms)
		u.full.Store(slices.ContainsFunc(said.alarms, func(text string) bool { return strings.Contains(text, etcdserverpb.AlarmType_NOSPACE.String()) }))
	}
	if asker.Err() == nil { // else the asker gave them less than sizeTimeout
		u.heard.Store(said)
		u.silent.look(outcome, u.clock())
	}
	return size, quota
}
