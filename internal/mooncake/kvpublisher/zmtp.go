package kvpublisher

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
)

// The publishing side of ZMTP 3.0 (https://rfc.zeromq.org/spec/23/) with the NULL
// mechanism, which is all that a PUB socket needs: a greeting, READY, and then frames.
// The Go library for ZeroMQ allocates whatever size a peer announces.

const (
	handshakeTimeout = 10 * time.Second
	writeTimeout     = 20 * time.Second
	maxSubscribers   = 256
	maxPeerFrame     = 1024 // of READY and of subscriptions, in bytes

	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// greeting announces version 3.0 and the mechanism NULL.
func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xFF, 0x7F, 3
	copy(g[12:], "NULL")
	return g
}

// ready is the command READY of a PUB socket.
func ready() []byte {
	body := "\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
	return append([]byte{flagCommand, byte(len(body))}, body...)
}

// frames are those of a batch: an empty topic, the number, the payload.
func frames(number uint64, payload []byte) []byte {
	b := make([]byte, 0, 2+10+9+len(payload))
	b = append(b, flagMore, 0, flagMore, 8)
	b = binary.BigEndian.AppendUint64(b, number)
	b = append(b, flagLong)
	b = binary.BigEndian.AppendUint64(b, uint64(len(payload)))
	return append(b, payload...)
}

type subscribers struct {
	places *share.Budget // one host gets half of them

	mu  sync.Mutex
	all map[*subscriber]bool
}

// A subscriber gets the batches published since it subscribed.
type subscriber struct {
	conn net.Conn

	mu      sync.Mutex
	topics  int // subscriptions to the empty topic, which takes in everything
	waiting [][]byte
	bytes   int
	more    chan struct{} // has one if something waits
	slow    bool
}

// Run takes connections until the context ends.
func (p *Publisher) Run(ctx context.Context) error {
	if p == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _ = p.Listener.Close() })
	defer stop()
	g.Go(func() error {
		for {
			conn, err := p.Listener.Accept()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, net.ErrClosed):
				return fmt.Errorf("taking subscribers of KV events: %w", err)
			case err != nil:
				if err := clock.Sleep(ctx, 50*time.Millisecond); err != nil {
					return err
				}
				continue
			}
			g.Go(func() error { p.serve(ctx, conn); return nil })
		}
	})
	return g.Wait()
}

// serve speaks with one subscriber until it goes, or does not keep up.
func (p *Publisher) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	log := p.Log.With().Stringer("peer", conn.RemoteAddr()).Logger()
	if from, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err != nil || !p.Allow(from.Addr()) {
		p.refused.Warn().Stringer("peer", conn.RemoteAddr()).Msg("a subscriber of KV events was refused: --mooncake-allow does not have its address")
		return
	}
	s := &subscriber{conn: conn, more: make(chan struct{}, 1)}
	host := share.Host(conn.RemoteAddr())
	taken, all, own := p.subscribers.places.Take(host, 1)
	if !taken {
		p.refused.Warn().Str("host", host).Int64("subscribers", all).Int64("of_host", own).Msg("a subscriber of KV events was refused: there are too many")
		return
	}
	p.subscribers.add(s)
	defer p.subscribers.remove(s)
	defer p.subscribers.places.GiveBack(host, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	r := bufio.NewReader(conn)
	if err := handshake(conn, r); err != nil {
		log.Debug().Err(err).Msg("a subscriber of KV events was refused")
		return
	}
	var writer sync.WaitGroup
	writer.Go(func() { s.write(ctx); cancel() })
	log.Info().Msg("a subscriber of KV events has connected")
	err := s.read(r)
	cancel()
	writer.Wait()
	log.Info().Err(err).Msg("a subscriber of KV events has gone")
}

func handshake(conn net.Conn, r *bufio.Reader) error {
	if err := conn.SetDeadline(clock.Deadline(handshakeTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(greeting()); err != nil {
		return err
	}
	var theirs [64]byte
	if _, err := io.ReadFull(r, theirs[:]); err != nil {
		return err
	}
	if theirs[0] != 0xFF || theirs[9] != 0x7F || theirs[10] < 3 || string(theirs[12:17]) != "NULL\x00" {
		return fmt.Errorf("it greets with %q, which is not ZMTP 3 with the mechanism NULL", theirs[:])
	}
	if _, err := conn.Write(ready()); err != nil {
		return err
	}
	if flags, body, err := readFrame(r); err != nil || flags&flagCommand == 0 || len(body) < 6 || string(body[:6]) != "\x05READY" {
		return fmt.Errorf("it sends %q instead of READY: %w", body, err)
	}
	return conn.SetDeadline(time.Time{})
}

func readFrame(r *bufio.Reader) (flags byte, body []byte, err error) {
	if flags, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	var size [8]byte
	length := size[7:]
	if flags&flagLong != 0 {
		length = size[:]
	}
	if _, err = io.ReadFull(r, length); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint64(size[:])
	if n > maxPeerFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes, at most %d are possible", n, maxPeerFrame)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return flags, body, err
}

// read takes subscriptions: a message of a 1, or of a 0 to end one, and the topic.
func (s *subscriber) read(r *bufio.Reader) error {
	for {
		flags, body, err := readFrame(r)
		if err != nil {
			return err
		}
		if flags&(flagCommand|flagMore) != 0 || len(body) != 1 || body[0] > 1 {
			continue // of no use to us, or about a topic that there is not
		}
		s.mu.Lock()
		if body[0] == 1 {
			s.topics++
		} else {
			s.topics = max(0, s.topics-1)
		}
		s.mu.Unlock()
	}
}

// write sends what waits, until the connection breaks or the context ends.
func (s *subscriber) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.more:
		}
		s.mu.Lock()
		batch := net.Buffers(s.waiting)
		s.waiting, s.bytes = nil, 0
		s.mu.Unlock()
		if s.conn.SetWriteDeadline(clock.Deadline(writeTimeout)) != nil {
			return
		}
		if _, err := batch.WriteTo(s.conn); err != nil {
			return
		}
	}
}

// send queues a batch for all, and disconnects those for whom more than hold bytes wait.
// It returns how many those are.
func (all *subscribers) send(batch []byte, hold int) (slow int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for s := range all.all {
		if s.queue(batch, hold) {
			slow++
			_ = s.conn.Close() // its reader and writer end, and take it off the list
		}
	}
	return slow
}

// queue reports whether the subscriber is found too slow now.
func (s *subscriber) queue(batch []byte, hold int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.topics == 0 || s.slow:
		return false
	case s.bytes+len(batch) > hold:
		s.slow, s.waiting = true, nil
		return true
	}
	s.waiting, s.bytes = append(s.waiting, batch), s.bytes+len(batch)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return false
}

func (all *subscribers) add(s *subscriber) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.all[s] = true
}

func (all *subscribers) remove(s *subscriber) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.all, s)
}
