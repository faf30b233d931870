// Package access says who a caller is, and which roles there are. What a role may do
// stands with the calls: in internal/rpc and internal/httpapi.
//
// It must never take a caller's word for who it is.
package access

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/files"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// Roles are a set of roles.
type Roles uint8

// The roles.
const (
	Client   Roles = 1 << iota // hosts that put, read and lend memory, each under its own client id
	Operator                   // people, and what acts for them
	Node                       // the other nodes of the cluster
	Viewer                     // people who look, and give no order

	Nobody Roles = 0
	All          = Client | Viewer | Operator | Node
)

// String names the roles, as certificates and token files do.
func (r Roles) String() string {
	var names []string
	for _, one := range []struct {
		role Roles
		name string
	}{{Client, "client"}, {Viewer, "viewer"}, {Operator, "operator"}, {Node, "node"}} {
		if r&one.role != 0 {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, " or ")
}

func parse(name string) (Roles, bool) {
	roles := []Roles{Client, Viewer, Operator, Node}
	i := slices.IndexFunc(roles, func(r Roles) bool { return r.String() == name })
	if i < 0 {
		return Nobody, false
	}
	return roles[i], true
}

// An Identity is who calls.
type Identity struct {
	Name     string
	Role     Roles     // one
	ClientID uuid.UUID // the only one that a client may use
}

// Check reports whether the caller has one of the roles.
func (i Identity) Check(roles Roles, call string) error {
	if i.Role&roles == 0 {
		return errs.New(errs.IllegalClient, "", "%s is for the role %v, and %.100q has %v", call, roles, i.Name, i.Role)
	}
	return nil
}

// CheckClient reports whether the caller may act under a client id: an operator under any,
// a client under its own.
func (i Identity) CheckClient(id string) error {
	parsed, err := uuid.Parse(id)
	if i.Role == Client && (err != nil || parsed != i.ClientID || parsed == uuid.Nil) {
		return errs.New(errs.IllegalClient, "", "%.100q may use the client id %v, and not %.40q", i.Name, i.ClientID, id)
	}
	return nil
}

// Callers tells who callers are: by their certificates, and by tokens.
type Callers struct {
	file   string // of tokens; empty for none
	log    zerolog.Logger
	read   []byte
	tokens atomic.Pointer[map[[sha256.Size]byte]Identity]
}

const (
	maxFile = 4 << 20
	// minToken is the least length of a token: 128 bits in hexadecimal digits.
	minToken = 32
	// maxToken is the most: it has room in the headers of a call.
	maxToken = 8 << 10
)

// New reads a file of tokens, if one is named.
func New(file string, log zerolog.Logger) (*Callers, error) {
	c := &Callers{file: file, log: log}
	return c, c.load()
}

// Run reads the tokens again when they change, until the context ends.
func (c *Callers) Run(ctx context.Context) error {
	if c == nil || c.file == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	return files.Reload(ctx, c.load, func(err error) {
		c.log.Error().Err(err).Msg("new tokens cannot be used; those read before stay in use")
	})
}

func (c *Callers) load() error {
	tokens := make(map[[sha256.Size]byte]Identity)
	if c.file != "" {
		b, err := files.Read(c.file, maxFile)
		if err != nil || c.read != nil && bytes.Equal(b, c.read) {
			return err
		}
		if tokens, err = parseTokens(b); err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		c.read = b
	}
	c.tokens.Store(&tokens)
	return nil
}

// parseTokens reads lines of role, name, token and, of a client, its client id. Errors
// name lines, and no tokens.
func parseTokens(b []byte) (map[[sha256.Size]byte]Identity, error) {
	tokens := make(map[[sha256.Size]byte]Identity)
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		role, ok := parse(fields[0])
		want := 3
		if role == Client {
			want = 4
		}
		if !ok || role == Node || len(fields) != want {
			return nil, fmt.Errorf("line %d must be: operator NAME TOKEN, or: viewer NAME TOKEN, or: client NAME TOKEN CLIENT-ID", n)
		}
		if len(fields[2]) < minToken || len(fields[2]) > maxToken {
			return nil, fmt.Errorf("line %d: the token has %d characters, %d to %d are possible", n, len(fields[2]), minToken, maxToken)
		}
		i := Identity{Name: fields[1], Role: role}
		if role == Client {
			var err error
			if i.ClientID, err = uuid.Parse(fields[3]); err != nil {
				return nil, fmt.Errorf("line %d: the client id must be a UUID", n)
			}
		}
		tokens[sha256.Sum256([]byte(fields[2]))] = i
	}
	return tokens, lines.Err()
}

// Identify returns who calls over a connection with TLS, with a value of the header
// Authorization, which may be empty.
func (c *Callers) Identify(state *tls.ConnectionState, authorization string) (Identity, error) {
	if scheme, token, _ := strings.Cut(authorization, " "); strings.EqualFold(scheme, "bearer") {
		if i, ok := (*c.tokens.Load())[sha256.Sum256([]byte(token))]; ok && state != nil {
			return i, nil
		}
		return Identity{}, errs.New(errs.IllegalClient, "", "the token is unknown, or came without TLS")
	}
	if state == nil || len(state.VerifiedChains) == 0 {
		return Identity{}, errs.New(errs.IllegalClient, "", "the caller has shown neither a certificate nor a token")
	}
	return ofCertificate(state.VerifiedChains[0][0])
}

// CountedAs returns the identity that a connection counts for besides its address: that of the
// certificate shown over it. It is empty for none: without roles (nil), without a certificate
// that says who calls, and for nodes, whose connections keep the cluster going. Tokens come with
// calls, of which one connection may carry those of several identities.
func (c *Callers) CountedAs(state *tls.ConnectionState) string {
	if c == nil || state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	i, err := ofCertificate(state.VerifiedChains[0][0])
	if err != nil || i.Role == Node {
		return ""
	}
	return i.Name
}

// ofCertificate reads the subject: the common name, which must be there, an organizational
// unit that is a role, and a client's id as the URI urn:uuid:ID.
func ofCertificate(c *x509.Certificate) (i Identity, err error) {
	if i.Name = c.Subject.CommonName; i.Name == "" { // what it takes would count for its host
		return i, errs.New(errs.IllegalClient, "", "the certificate with the serial number %x has no common name (CN), which says who calls", c.SerialNumber)
	}
	for _, unit := range c.Subject.OrganizationalUnit {
		if role, ok := parse(unit); ok {
			i.Role |= role
		}
	}
	if !slices.Contains([]Roles{Client, Viewer, Operator, Node}, i.Role) {
		return i, errs.New(errs.IllegalClient, "", "the certificate of %.100q must have exactly one of the organizational units client, viewer, operator and node", i.Name)
	}
	if i.ClientID, err = certs.ClientID(c); err != nil {
		return i, errs.New(errs.IllegalClient, "", "the certificate of %.100q has a URI that is no urn:uuid", i.Name)
	}
	return i, nil
}
