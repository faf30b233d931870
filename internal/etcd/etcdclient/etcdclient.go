// Package etcdclient connects to etcd the way this program needs it: quiet,
// quick to come back after an outage, and bounded.
package etcdclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/certs"
)

const (
	dialTimeout = 5 * time.Second
	// Reconnects must be quick: a session may last only 2 s.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
	// A silent connection is pinged this often, the least that gRPC allows, and
	// given up without an answer.
	pingEvery   = 10 * time.Second
	pingTimeout = 3 * time.Second
)

// New returns a connection to the given endpoints. It does not wait for one of
// them to answer. It uses one of them, at first the first one, and moves on when
// that does not answer: with a single endpoint, to a new connection. Endpoints
// returns the one in use.
func New(endpoints []string) (*clientv3.Client, error) {
	return Connect(context.Background(), endpoints, Access{}, nil)
}

// Access is what etcd demands of clients. The zero value is for one that demands nothing.
type Access struct {
	TLS *tls.Config // nil for plain text
	// Renewed returns the present TLS, perhaps with other authorities; it is called for each
	// connection. nil if TLS stays as it is.
	Renewed func() *tls.Config
	User    string
	// Password returns the user's present password; it is called for each token. nil without
	// a user.
	Password func() (string, error)
}

// FixedPassword is an Access.Password that does not change.
func FixedPassword(password string) func() (string, error) {
	return func() (string, error) { return password, nil }
}

// PasswordFile is an Access.Password that stands in a file, up to an end of line. The file may
// change while etcd is in use.
func PasswordFile(path string) func() (string, error) {
	return func() (string, error) {
		b, err := os.ReadFile(path)
		return strings.TrimRight(string(b), "\r\n"), err
	}
}

// Connect is New for an etcd that demands something, with a log, which may be nil, of the
// moves from one endpoint to another. With a user it waits until etcd has taken the password,
// for 5 s at most, and no longer than the context lives. The client outlives the context.
func Connect(ctx context.Context, endpoints []string, access Access, log *slog.Logger) (*clientv3.Client, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m, err := connect(ctx, endpoints, access, log)
	if err != nil {
		return nil, err
	}
	return m.client, nil
}

// connect makes a client of the first endpoint. With a user that endpoint must answer: if it
// has not after callTimeout, or fails, the next one is asked as well. The first one that takes
// the password is used.
func connect(ctx context.Context, endpoints []string, access Access, log *slog.Logger) (*members, error) {
	if len(endpoints) == 0 {
		return nil, clientv3.ErrNoAvailableEndpoints
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	type attempt struct {
		m   *members
		err error
	}
	attempts := make(chan attempt, len(endpoints))
	begun, ended := 0, 0
	var why error // an endpoint's refusal rather than another one's silence
	defer func() {
		cancel()
		for ; ended < begun; ended++ {
			if a := <-attempts; a.err == nil {
				_ = a.m.client.Close()
			}
		}
	}()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			if at := begun; at < len(endpoints) {
				begun++
				go func() {
					m, err := connectTo(ctx, endpoints, at, access, log)
					attempts <- attempt{m, err}
				}()
				next.Reset(callTimeout)
			}
		case a := <-attempts:
			if ended++; a.err == nil {
				return a.m, nil
			}
			if why == nil || Silent(why) {
				why = a.err
			}
			if ended == len(endpoints) || ctx.Err() != nil {
				return nil, fmt.Errorf("etcd endpoints %s: %w", strings.Join(endpoints, ","), why)
			}
			next.Reset(0)
		}
	}
}

// connectTo makes a client that uses one of the endpoints at first. The context bounds the wait
// for a user's token, and not what the client does later.
func connectTo(ctx context.Context, endpoints []string, at int, access Access, log *slog.Logger) (*members, error) {
	m := &members{all: endpoints, at: at, log: log, clock: clock.Runtime(), password: access.Password, conns: make(map[net.Conn]struct{})}
	options := append(m.options(), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: firstRetry, Multiplier: 1.5, Jitter: 0.2, MaxDelay: lastRetry},
		MinConnectTimeout: time.Second,
	}))
	if access.Renewed != nil && secure(endpoints) {
		options = append(options, grpc.WithTransportCredentials(certs.Credentials(access.Renewed)))
	}
	life, cancel := context.WithCancel(context.Background())
	bound := context.AfterFunc(ctx, cancel)
	config := clientv3.Config{
		Endpoints:            endpoints[at : at+1],
		Context:              life,
		TLS:                  access.TLS,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    pingEvery,
		DialKeepAliveTimeout: pingTimeout,
		Logger:               zap.NewNop(), // failures come back as errors, which are logged where they are handled
		DialOptions:          options,
	}
	var err error
	if access.User != "" {
		config.Username = access.User
		if config.Password, err = access.Password(); err != nil {
			return nil, fmt.Errorf("the password of etcd's user %s: %w", access.User, err)
		}
	}
	if m.client, err = clientv3.New(config); err != nil {
		return nil, cmp.Or(ctx.Err(), err)
	}
	if !bound() {
		_ = m.client.Close()
		return nil, ctx.Err()
	}
	m.there.Store(true)
	return m, nil
}

// secure reports whether all endpoints are reached over TLS by a client that has it.
func secure(endpoints []string) bool {
	return !slices.ContainsFunc(endpoints, func(e string) bool {
		scheme, _, found := strings.Cut(e, "://")
		return found && scheme != "https"
	})
}

// checkKey is read to see whether etcd answers. Nobody writes it.
const checkKey = "understudy-check"

// answered reports whether a read of the check key shows that etcd works. A refusal does,
// since etcd asks the leader before it refuses: a user may not be allowed to read the key, and
// a member that has restarted does not know the tokens that it gave out before.
func answered(err error) bool {
	err = rpctypes.Error(err)
	return err == nil || errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// Silent reports whether an error of a client says that etcd does not answer: it is away,
// or elects a leader.
func Silent(err error) bool {
	if refusal, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return refusal.Code() == codes.Unavailable
	}
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded
}

// Refuses reports whether an error of a client says that etcd knows who calls, or who it says
// that it is, and does not do what it asks.
func Refuses(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrInvalidAuthToken) ||
		errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthFailed)
}

// Explain puts before an error of a client that etcd does not answer, if it says that.
func Explain(err error) error {
	if Silent(err) {
		return fmt.Errorf("etcd does not answer (see masterctl status): %w", err)
	}
	return err
}

// Says returns the text of an error for people, without the words that gRPC puts around what
// happened.
func Says(err error) string {
	text := err.Error()
	if before, status, ok := strings.Cut(text, "rpc error: code = "); ok {
		if _, said, ok := strings.Cut(status, " desc = "); ok {
			text = before + said
		}
	}
	text = strings.Replace(text, "error reading from server: ", "", 1)
	if before, late := strings.CutSuffix(text, context.DeadlineExceeded.Error()); late {
		return before + "no answer within the time limit"
	}
	if before, closed := strings.CutSuffix(text, net.ErrClosed.Error()); closed {
		for _, call := range []string{"read tcp ", "write tcp "} { // and the addresses of this machine
			before, _, _ = strings.Cut(before, call)
		}
		return before + "the connection was closed"
	}
	return text
}

// Check waits until etcd, at the endpoints that the client was made for, answers
// a linearizable read, or the context ends.
func Check(ctx context.Context, client *clientv3.Client, endpoints []string) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := client.Get(attempt, checkKey)
		cancel()
		if answered(err) {
			return nil
		}
		if clock.Sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("etcd at %s does not answer as it should: %w; check --etcd_endpoints and --etcd-user, and that etcd runs and has a leader",
				strings.Join(endpoints, ","), err)
		}
	}
}
