package sim

import (
	"sync"
	_ "unsafe" // for go:linkname

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// never is the channel that clientv3's watches wait on for what never comes.
// It is made when the program starts, outside of any synctest bubble, and a
// wait on such a channel keeps a bubble from being idle: time would stand
// still. A nil channel means the same, and a context does not even wait on it.
//
//go:linkname never go.etcd.io/etcd/client/v3.valCtxCh
var never chan struct{}

// logBytes is how much of the write-ahead log is allocated ahead: etcd's 64 MiB
// would cost more than all else.
const logBytes = 256 << 10

// prepare sets what is one for the whole program.
var prepare = sync.OnceFunc(func() {
	never = nil
	wal.SegmentSizeBytes = logBytes
})
