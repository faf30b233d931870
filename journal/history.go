package journal

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A History names one journal among all that were ever founded: 128 random bits in
// hexadecimal digits. Sequences and terms compare within one history only. Empty in
// a journal of the older format.
type History string

// NewHistory returns the name of a journal that is about to be founded.
func NewHistory() History { return History(randomID()) }

// Is reports whether two histories are the same, as far as they are named.
func (h History) Is(other History) bool { return h == "" || other == "" || h == other }

// An Election is the random id of one win of the leader key: 128 bits in hexadecimal
// digits. It stands in the leader's value and in each head that the elected node
// writes, so that nobody takes another node's key or head for its own: revisions
// repeat in an etcd that was restored from a backup.
type Election string

// NewElection returns the id for an election to come.
func NewElection() Election { return Election(randomID()) }

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// LeaderPrefix is how the value of the leader key begins, in JSON, while the
// election holds. The rest may change.
func (e Election) LeaderPrefix() string { return fmt.Sprintf(`{"election":"%s"`, string(e)) }

// Holds are the comparisons that are true while the leader key is of this election.
func (e Election) Holds(l Layout) []clientv3.Cmp {
	prefix := e.LeaderPrefix()
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(l.Leader()), ">", prefix),
		clientv3.Compare(clientv3.Value(l.Leader()), "<", clientv3.GetPrefixRangeEnd(prefix)),
	}
}

// elects reports whether a leader key's value is of this election.
func (e Election) elects(value []byte) bool {
	return strings.HasPrefix(string(value), e.LeaderPrefix())
}

// Stands is the comparison that is true while the head is what it is at a cursor, or
// is missing if the journal was never written.
func (c Cursor) Stands(l Layout) clientv3.Cmp {
	if c.value == "" && c.Revision == 0 {
		return clientv3.Compare(clientv3.CreateRevision(l.Head()), "=", 0)
	}
	return clientv3.Compare(clientv3.Value(l.Head()), "=", c.value)
}
