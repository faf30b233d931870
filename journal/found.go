package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/metadata"
)

// An Ancestor is a history that a journal descends from, with the sequence at which
// the next one was founded from it.
type Ancestor struct {
	History History      `json:"history"`
	Fork    metadata.Seq `json:"fork_sequence"`
}

// maxAncestors is how many ancestors a journal names.
const maxAncestors = 64

// Founding returns the head that founds a new history in place of a lost head, from a
// state at a position, in a later term.
func Founding(before Head, at metadata.Position, term metadata.Term) Head {
	h := before
	h.Format, h.Term, h.Seq, h.Time = FormatVersion, term, at.Seq, at.Time
	h.History, h.Parent, h.Fork = NewHistory(), before.History, at.Seq
	h.Streams, h.Checked, h.Digest, h.Clean, h.Heir = 0, at.Seq, at.Digest, false, ""
	return h
}

// Found founds the journal anew with a head, in place of what the log goes on behind, and
// deletes the records of the journal that is lost. ancestors are those of the journal
// that it is founded from; nil if only etcd may know them. instead, if not empty, is a
// history whose nodes are to go on with the new one, though it is not founded from
// theirs.
//
// Errors: ErrFenced if another node is elected or something else stands at the head; any
// other error leaves the outcome open.
func (l *EtcdLog) Found(ctx context.Context, head Head, ancestors []Ancestor, instead History) error {
	ctx, cancel := context.WithTimeout(ctx, 2*AttemptTimeout)
	defer cancel()
	head.Election = l.election
	value, err := head.encode()
	if err != nil {
		return err
	}
	list, err := l.ancestors(ctx, head, ancestors, instead)
	if err != nil {
		return err
	}
	ops := []clientv3.Op{
		clientv3.OpPut(l.layout.Head(), value), clientv3.OpPut(l.layout.Ancestors(), list),
	}
	for stream := range metadata.StreamCount {
		ops = append(ops, clientv3.OpDelete(l.layout.Records(stream), clientv3.WithPrefix()))
	}
	resp, err := l.client.Txn(ctx).If(l.fence()...).Then(ops...).Commit()
	switch {
	case err == nil && resp.Succeeded:
		l.advance(Cursor{head, resp.Header.Revision, value})
		return nil
	case err == nil:
		return ErrFenced
	}
	found, readErr := l.client.Get(ctx, l.layout.Head())
	if readErr == nil && len(found.Kvs) == 1 && string(found.Kvs[0].Value) == value {
		l.advance(Cursor{head, found.Kvs[0].ModRevision, value})
		return nil
	}
	return fmt.Errorf("founding the journal anew: %w", errors.Join(err, readErr))
}

// ancestors returns what a new history puts into the list of ancestors.
func (l *EtcdLog) ancestors(ctx context.Context, head Head, list []Ancestor, instead History) (value string, err error) {
	if len(list) == 0 {
		if list, err = (&Reader{Client: l.client, Layout: l.layout}).Ancestors(ctx); err != nil {
			return "", err
		}
	}
	if instead != "" && instead != head.Parent {
		list = append([]Ancestor{{instead, 0}}, list...)
	}
	list = append([]Ancestor{{head.Parent, head.Fork}}, list...)
	b, err := json.Marshal(list[:min(len(list), maxAncestors)])
	return string(b), err
}

// Ancestors returns the histories that the journal in etcd descends from, the
// newest first.
func (r *Reader) Ancestors(ctx context.Context) ([]Ancestor, error) {
	resp, err := r.Client.Get(ctx, r.Layout.Ancestors())
	if err != nil {
		return nil, fmt.Errorf("reading the journal's ancestors: %w", err)
	}
	var list []Ancestor
	if len(resp.Kvs) == 1 && json.Unmarshal(resp.Kvs[0].Value, &list) != nil {
		return nil, nil // written by hand: as good as none
	}
	return list, nil
}
