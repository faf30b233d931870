package fakeetcd

import (
	"sync"
	_ "unsafe" // for go:linkname
)

// never is the channel that clientv3's watches wait on for what never comes.
// It is made when the program starts, outside of any synctest bubble, and a
// wait on such a channel keeps a bubble from being idle: time would stand
// still. A nil channel means the same, and a context does not even wait on it.
//
//go:linkname never go.etcd.io/etcd/client/v3.valCtxCh
var never chan struct{}

var forgetNever = sync.OnceFunc(func() { never = nil })
