package promote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote/follower"
)

// One look says why no node serves, and what helps.
func TestObstacles(t *testing.T) {
	t.Parallel()
	serving := Leader{NodeID: "b", Term: 3, State: Serving}
	lost := func(newer, foreign bool) follower.Loss {
		return follower.Loss{Err: &journal.LostError{Cause: "the cause", Newer: newer, Foreign: foreign}}
	}
	away := fmt.Errorf("reading the leader: %w", context.DeadlineExceeded)
	full := fmt.Errorf("running for election: %w", rpctypes.ErrNoSpace)
	for name, tt := range map[string]struct {
		facts
		cause        Cause // empty for none
		reason, help string
	}{
		"the primary":              {facts: facts{role: Primary}},
		"a standby":                {facts: facts{role: Standby, leader: serving}},
		"lapsed":                   {facts{role: Fenced, leader: serving}, RightLapsed, "no commit has come through", "answers quickly"},
		"lapsed, full":             {facts{role: Fenced, commit: rpctypes.ErrNoSpace}, EtcdFull, "NOSPACE", "etcdctl alarm disarm"},
		"lapsed, full, embedded":   {facts{role: Fenced, commit: rpctypes.ErrNoSpace, owns: true}, EtcdFull, "NOSPACE", "--etcd-quota-bytes"},
		"lapsed, corrupt":          {facts{role: Fenced, commit: rpctypes.ErrCorrupt}, EtcdCorrupt, "answers nobody", "etcdctl alarm list"},
		"lapsed, etcd away":        {facts{role: Fenced, commit: away}, EtcdAway, "etcd does not answer", "--etcd_endpoints"},
		"lapsed, refused":          {facts{role: Fenced, commit: rpctypes.ErrPermissionDenied}, EtcdRefuses, "permission denied", "grant-permission"},
		"etcd refuses the user":    {facts{role: Standby, failed: rpctypes.ErrPermissionDenied}, EtcdRefuses, "permission denied", "--etcd-user"},
		"etcd refuses a password":  {facts{role: Standby, failed: rpctypes.ErrAuthFailed}, EtcdRefuses, "authentication failed", "its password"},
		"handing over":             {facts{role: HandingOver, leader: serving}, HandsOver, "hands over", ""},
		"handing over, full":       {facts{role: HandingOver, commit: rpctypes.ErrNoSpace}, HandsOver, "NOSPACE", "etcdctl defrag"},
		"elected":                  {facts{role: Promoting}, GetsReady, "promoting", ""},
		"another elected":          {facts{role: Standby, leader: Leader{NodeID: "b", Term: 3, State: Elected}}, GetsReady, "b is elected in term 3", ""},
		"etcd away":                {facts{role: Standby, leader: serving, failed: away}, EtcdAway, "etcd does not answer", "--etcd_endpoints"},
		"etcd reset":               {facts{role: Standby, failed: fmt.Errorf("reading: %w", status.Error(codes.Unavailable, "connection reset"))}, EtcdAway, "etcd does not answer: reading: connection reset", "--etcd_endpoints"},
		"etcd refuses":             {facts{role: Standby, failed: rpctypes.ErrNoLeader}, EtcdAway, "no leader", "has a leader"},
		"own members away":         {facts{role: Standby, owns: true, member: true, failed: away}, EtcdAway, "own etcd", "see that more than half of the members of etcd run"},
		"embedded etcd away":       {facts{role: Standby, owns: true, failed: away}, EtcdAway, "embedded etcd", "--data-dir"},
		"etcd full":                {facts{role: Standby, failed: full}, EtcdFull, "NOSPACE", "etcdctl defrag"},
		"another's etcd full":      {facts{role: Standby, failed: full, owner: "a"}, EtcdFull, "NOSPACE", "wait until a"},
		"etcd corrupt":             {facts{role: Standby, failed: rpctypes.ErrCorrupt}, EtcdCorrupt, "CORRUPT", "etcdctl alarm list"},
		"journal lost":             {facts{role: Standby, loss: lost(false, false), id: "a"}, JournalLost, "the cause", "masterctl refound --from a"},
		"journal lost, others":     {facts{role: Standby, loss: lost(false, false), failed: errors.New("b is to found it"), id: "a"}, JournalLost, "b is to found it", "masterctl refound --from a"},
		"a newer head":             {facts{role: Standby, loss: lost(true, false)}, JournalLost, "the cause", "upgrade"},
		"a foreign head":           {facts{role: Standby, loss: lost(false, true), id: "a"}, JournalLost, "the cause", "move its state directory away"},
		"a foreign head, serving":  {facts: facts{role: Standby, leader: serving, loss: lost(false, true)}},
		"unreadable, no state":     {facts{role: Standby, failed: unreadable("a", errors.New("bad"))}, JournalLost, "bad", "masterctl start-empty"},
		"newer, no state":          {facts{role: Standby, failed: unreadable("a", journal.ErrNewer)}, JournalLost, "upgrade", "upgrade"},
		"a leader without a lease": {facts{role: Standby, leader: serving, failed: squatted("/k", Leader{}, time.Second)}, Squatted, "no lease", "etcdctl del /k"},
		"an unreadable leader":     {facts{role: Standby, failed: squatted("/k", Leader{unreadable: true}, time.Second)}, Squatted, "nobody can read", "etcdctl del /k"},
		"refused, another elected": {facts{role: Standby, leader: Leader{NodeID: "b", Term: 3, State: Elected}, refused: rpctypes.ErrPermissionDenied}, EtcdRefuses, "permission denied", "mooncake-store/"},
		"refused, elected again":   {facts{role: Promoting, refused: rpctypes.ErrPermissionDenied}, EtcdRefuses, "permission denied", "grant-permission"},
		"refused, full":            {facts{role: Standby, refused: rpctypes.ErrNoSpace}, EtcdFull, "NOSPACE", "etcdctl defrag"},
		"refused, another serves":  {facts: facts{role: Standby, leader: serving, refused: rpctypes.ErrPermissionDenied}},
		"not refused":              {facts{role: Promoting, refused: away}, GetsReady, "promoting", ""},
		"deposed":                  {facts{role: Standby, ended: fmt.Errorf("x: %w", journal.ErrFenced)}, Deposed, "deposed", "masterctl history"},
		"a term that ended":        {facts{role: Standby, ended: errors.New("the session")}, Unelected, "the session", ""},
		"something else":           {facts{role: Standby, failed: errors.New("b still commits")}, Unelected, "b still commits", ""},
		"nothing yet":              {facts{role: Standby}, Unelected, "no node is elected", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := tt.obstacle()
			switch {
			case got == nil && tt.cause == "":
			case got == nil || got.Cause != tt.cause:
				t.Errorf("got %+v, want %q", got, tt.cause)
			case !strings.Contains(got.Reason, tt.reason) || !strings.Contains(got.Help, tt.help) || (tt.help == "") != (got.Help == ""):
				t.Errorf("got %q with help %q, want %q and %q", got.Reason, got.Help, tt.reason, tt.help)
			}
		})
	}
}

// A leader that commits nothing, and that no node deposes, is an obstacle after three failover
// times, until it commits again or another node is elected.
func TestSilentLeaderIsAnObstacle(t *testing.T) {
	t.Parallel()
	leader := Leader{NodeID: "b", State: Serving}
	at := func(value string) journal.View {
		return journal.View{Cursor: journal.NewCursor(journal.Head{Failover: 1000}, 1, value)}
	}
	var s silence
	for i, step := range []struct {
		at       time.Duration
		leader   Leader
		view     journal.View
		obstacle bool
	}{
		{1 * time.Second, leader, at("1"), false},
		{3 * time.Second, leader, at("1"), false},
		{5 * time.Second, leader, at("1"), true},
		{6 * time.Second, leader, at("2"), false},
		{8 * time.Second, leader, at("2"), false},
		{10 * time.Second, leader, at("2"), true},
		{11 * time.Second, Leader{}, at("2"), false},
		{12 * time.Second, leader, at("2"), false},
		{20 * time.Second, leader, at("2"), false}, // etcd did not answer for so long
	} {
		before := s
		if err := s.look(step.at, step.leader, step.view, Pause{}); (err != nil) != step.obstacle {
			t.Errorf("look %d: got %v, want an obstacle: %t", i+1, err, step.obstacle)
		}
		err := before.look(step.at, step.leader, step.view, Pause{For: "30m", there: true})
		if o := (*Obstacle)(nil); errors.As(err, &o) != step.obstacle || o != nil && o.Cause != TakeoverPaused {
			t.Errorf("look %d in a pause: got %v, want the pause: %t", i+1, err, step.obstacle)
		}
	}
}
