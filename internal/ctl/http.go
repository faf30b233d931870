package ctl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// maxAnswer bounds what is read of an HTTP answer.
const maxAnswer = 8 << 20

// askPrimary makes a call of Mooncake's HTTP API at the primary. conflict is the explanation
// for status 409 if the answer has none.
func (ns nodes) askPrimary(ctx context.Context, op, method, path string, body []byte, result any, conflict string) error {
	primary := ns.primary()
	if primary == nil {
		return errs.New(errs.NotLeader, op, "no node serves")
	}
	status, text, reason, err := primary.http(ctx, op, method, path, body)
	if err != nil {
		return err
	}
	if status == http.StatusForbidden {
		return errs.New(errs.IllegalClient, op, "%s", strings.TrimSpace(string(text)))
	}
	var failure struct {
		Number  int32  `json:"error_code"`
		Message string `json:"error_message"`
	}
	if err := json.Unmarshal(text, &failure); err != nil && (status/100 == 4 || status == http.StatusServiceUnavailable) {
		return cli.Advised(errs.New(errs.Unavailable, op, "%s answers: %.300s", primary.status.GetNode().GetHttpAddress(), strings.TrimSpace(string(text))))
	} else if err != nil {
		return errs.Wrap(errs.Unresolved, op, fmt.Errorf("%s answers with status %d: %w", primary.status.GetNode().GetHttpAddress(), status, err))
	}
	failure.Message = cmp.Or(reason, failure.Message)
	kind, known := errs.FromNumber(failure.Number)
	bare := failure.Message == kind.String()
	switch {
	case failure.Number == 0:
		return json.Unmarshal(text, result)
	case !known:
		return fmt.Errorf("%s (%d): %s", failure.Message, failure.Number, conflict)
	case status == http.StatusConflict && bare: // the usual advice for the kind is about nodes
		return cli.Advised(errs.New(kind, op, "%s", conflict))
	case status == http.StatusConflict:
		return cli.Advised(errs.New(kind, op, "%s", failure.Message))
	case bare:
		return errs.New(kind, op, "")
	}
	return errs.New(kind, op, "%s", failure.Message)
}

// http makes a request of a node's HTTP service. http.Client would add a megabyte of
// HTTP/2, proxies and cookies to the program.
func (n *node) http(ctx context.Context, op, method, path string, body []byte) (status int, text []byte, reason string, err error) {
	address, open := n.status.GetNode().GetHttpAddress(), errs.Unresolved
	if method == http.MethodGet { // it changes nothing, so its outcome is never open
		open = errs.Unavailable
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	req.Close = true
	conn, err := n.dial(ctx, address, req)
	if err != nil {
		return 0, nil, "", errs.Wrap(errs.Unavailable, op, err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(0, 0)) })()
	if err := req.Write(conn); err != nil {
		return 0, nil, "", errs.Wrap(open, op, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return 0, nil, "", errs.Wrap(open, op, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, "", errs.Wrap(open, op, err)
	}
	return resp.StatusCode, text, resp.Header.Get(pb.ReasonHeader), nil
}

// httpCause returns, for people, why the HTTP service at an address did not answer, without
// the address.
func httpCause(address string, err error) string {
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Err != nil {
		err = e.Err
	}
	if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
		return rpcerr.NoAnswer
	}
	return rpcerr.Cause(address, err)
}

// dial connects to a node's HTTP service, and adds the caller's token to the request. A node
// that accepts gRPC with and without TLS (--tls-required=false) serves HTTP without TLS:
// requests that change nothing then go in plain text, without the token.
func (n *node) dial(ctx context.Context, address string, req *http.Request) (net.Conn, error) {
	if n.as.secrecy == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	conn, err := (&tls.Dialer{Config: n.as.secrecy}).DialContext(ctx, "tcp", address)
	if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && req.Method == http.MethodGet {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	if err == nil && n.as.token != "" {
		req.Header.Set("Authorization", "Bearer "+n.as.token)
	}
	return conn, err
}
