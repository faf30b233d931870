package judge

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/client"
)

// What a drill does to hosts, which are numbered from 0. Only one goroutine may call these.

// KillHost kills a host: its owner is silent from now on. The cluster may lose its objects,
// and nothing else.
func (l *Load) KillHost(number int) {
	endpoint := l.hostMayLose(number, "dies")
	l.owners[endpoint].kill()
	delete(l.owners, endpoint)
}

// HostName returns the name of a host's segment.
func (l *Load) HostName(number int) string { return l.hosts[l.endpoint(number)].Name }

// UnmountHost makes a host unmount its memory. Readers and writers of its objects go on using
// the bytes, which stay where they are.
func (l *Load) UnmountHost(ctx context.Context, number int) error {
	endpoint := l.hostMayLose(number, "takes its memory back")
	return l.owners[endpoint].UnmountSegment(ctx, l.hosts[endpoint].Segment)
}

// MountHost makes a host lend its memory anew, except the first bytes: under another id,
// replacing the segments that it overlaps, and as a new process if the host was killed.
// Objects that are put there from then on must not be lost.
func (l *Load) MountHost(ctx context.Context, number int, except uint64) error {
	endpoint := l.hostMayLose(number, fmt.Sprintf("lends its memory anew, but for %d bytes", except))
	if err := l.lend(ctx, endpoint, uuid.New(), except); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, loss := range l.losses {
		if loss.Host == endpoint && loss.To == forever {
			l.losses[i].To = l.Now()
		}
	}
	return nil
}

// lend mounts a host's memory.
func (l *Load) lend(ctx context.Context, endpoint string, id uuid.UUID, except uint64) error {
	h, owner := l.hosts[endpoint], l.owners[endpoint]
	if owner == nil {
		var err error
		if owner, err = newOwner(l, h); err != nil {
			return err
		}
		l.owners[endpoint] = owner
	}
	h.Segment = id
	return owner.MountSegment(ctx, client.Segment{
		ID: id, Name: h.Name, Base: h.Base + except, Size: h.Size() - except, Endpoint: h.Endpoint, Protocol: "tcp",
	})
}

func (l *Load) endpoint(number int) string {
	endpoints := l.hosts.Endpoints()
	return endpoints[number%len(endpoints)]
}

// hostMayLose records that the cluster may lose a host's objects from now on.
func (l *Load) hostMayLose(number int, why string) (endpoint string) {
	endpoint = l.endpoint(number)
	l.Mark("the host at " + endpoint + " " + why)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses = append(l.losses, Loss{From: l.Now(), To: forever, Host: endpoint})
	return endpoint
}
