package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/understudy-store/understudy/errs"
)

// explain returns the text of a command's error, followed by advice on what to do.
func explain(err error, command string) string {
	text := Numbered(err)
	kind := errs.KindOf(err)
	if kind == errs.Unresolved && !errors.Is(err, errs.Unresolved) {
		return text // a context that has ended: no call's outcome is open
	}
	advice := advices[kind]
	switch {
	case errors.As(err, new(advised)), advice == seeStatus && saysMore(text):
		return text
	case kind == errs.Unavailable && adviceOnAccess(text) != "":
		advice = adviceOnAccess(text)
	case kind == errs.NotSupported && !strings.Contains(text, "high availability is off"):
		return text // no cluster would help
	case kind == errs.IllegalClient && slices.ContainsFunc(lacksRole, func(says string) bool { return strings.Contains(text, says) }):
		advice = "call with the certificate or the token of an operator, or for what changes nothing of a viewer: --tls-cert and --tls-key, or --token-file with --tls-ca"
	case kind == errs.IllegalClient && (command == "mount" || strings.Contains(text, "may use the client id")):
		advice = "name the client that your certificate or token is for with --client-id"
	case advice == seeStatus && (command == "status" || command == "doctor" || strings.Contains(text, "no node answers")):
		advice = "check whether nodes run, and --address or --etcd_endpoints (" + EnvPrefix + "ADDRESS, " + EnvPrefix + "ETCD_ENDPOINTS)"
	}
	if advice != "" {
		text += "\nwhat to do: " + advice
	}
	return text
}

// adviceOnAccess returns what to do where a connection was made and led nowhere; empty if the
// text of an error does not show that.
func adviceOnAccess(text string) string {
	for _, a := range []struct{ says, advice string }{
		{"this node waits", "start what it waits for, or correct what it was told (--join, --etcd_endpoints); its log says more"},
		{"tls: certificate required", showYourself}, {"broken pipe", showYourself},
		{"does not look like a TLS handshake", "the node takes plain text: leave out --tls-ca, --tls-cert and --tls-key"},
		{"signed by unknown authority", "give the file with the authority of the nodes' certificates: --tls-ca"},
		{"HTTP/1.1", otherPort}, {"missing selected ALPN property", otherPort},
		{"certificate is valid for", "call the node by a name that its certificate has; or issue it one that has the address of your call"},
		{"unknown certificate authority", "the node does not know the authority of your certificate: give --tls-cert of one that is in its --tls-ca"},
		{"server preface", "the node may demand TLS: give --tls-ca, and --tls-cert with --tls-key; or it takes no more connections: see its log"},
	} {
		if strings.Contains(text, a.says) {
			return a.advice
		}
	}
	return ""
}

const otherPort = "that port is one for HTTP: give the node's port for calls (--rpc_port, 50051 by default)"

const showYourself = "the node may demand to know who calls: give --tls-cert with --tls-key, or --token-file; else see that it runs"

// interrupted returns the text of the error of a command that the user has interrupted. It
// says what became of the command, such as a change whose outcome is open.
func interrupted(err error, command string) string {
	if exit, ok := errors.AsType[exitError](err); ok {
		err = exit.err
	}
	if err == nil || err.Error() == context.Canceled.Error() {
		return "interrupted"
	}
	return "interrupted: " + explain(err, command)
}

// lacksRole has parts of the messages that nodes send to callers without the needed role.
var lacksRole = []string{"is for the role", "neither a certificate", "the token is unknown"}

// Numbered returns the text of an error, with the C++ master's number after the name of its
// kind. It drops the text of a context's error if there is a detail.
func Numbered(err error) string {
	kind, text := errs.KindOf(err), err.Error()
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Detail != "" {
		text = strings.TrimSuffix(text, ": "+context.DeadlineExceeded.Error())
		text = strings.TrimSuffix(text, ": "+context.Canceled.Error())
	}
	numbered := fmt.Sprintf("%v (%d)", kind, kind.Number())
	if strings.Contains(text, numbered) {
		return text // an error of many, each with its number
	}
	return strings.Replace(text, kind.String(), numbered, 1)
}

// saysMore reports whether the error of a node that could not serve the call has its own
// advice. If no node could, the status has better advice.
func saysMore(text string) bool {
	if strings.Contains(text, "no node serves") || strings.Contains(text, "no node answers") {
		return false
	}
	says := func(hint string) bool { return strings.Contains(text, hint) }
	return slices.ContainsFunc([]string{"masterctl ", "try again", "ask again", "it again", "another one", "; start ", "; upgrade ", "; check ", "; see ", ": stop it", "--yes"}, says)
}

// advised is an error whose text already has advice.
type advised struct{ error }

func (a advised) Unwrap() error { return a.error }

// Advised marks an error whose text already has advice, so that no advice on its kind is
// added.
func Advised(err error) error { return advised{err} }

const seeStatus = "masterctl status shows which node serves and which could take over; if none answers, check --address or --etcd_endpoints"

// advices say what a user may do about an error.
var advices = map[errs.Kind]string{
	errs.ObjectNotFound:      "put it first (masterctl put KEY), or look whether it was removed or evicted: masterctl explain KEY",
	errs.ObjectExists:        "use another key, or remove the object first: masterctl rm KEY; a reservation that is not ended can be replaced after 30 s",
	errs.ObjectHasLease:      "wait until its readers' leases have ended, or remove it with --force",
	errs.ReplicaNotReady:     "its put is not ended: masterctl put-end KEY, or put-revoke",
	errs.NoAvailableHandle:   "lend memory to the store (masterctl segments mount NAME --size 64MiB), or wait for an eviction, or until memory in quarantine is free or a drain has ended (masterctl segments), and try again",
	errs.IllegalClient:       "name the client that started the put with --client-id; put-start prints it",
	errs.SegmentNotFound:     "masterctl segments lists those that are mounted",
	errs.Unavailable:         seeStatus,
	errs.NotLeader:           seeStatus,
	errs.Unresolved:          "the outcome is open, so look before you repeat it; --timeout gives it more time; " + seeStatus,
	errs.TenantNotRegistered: "give the tenant a quota: masterctl quota set NAME SIZE",
	errs.TenantQuotaExceeded: "remove objects of the tenant, or wait until its readers' leases have ended; or raise its quota: masterctl quota set NAME SIZE",
	errs.NotSupported:        "it needs a cluster: a master with --enable_ha=true (the default)",
}
