package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
)

// roomStep is by how much an answer grows before it is checked again whether there is room
// beside the answers that are not read.
const roomStep = 64 << 10

// An answerRoom bounds an answer while it is made, as service.AnswerRoom: it must fit a
// message, and there must be room for it beside the answers to its host that are not read. It
// takes nothing from that budget: budgeted does, when the answer is complete.
type answerRoom struct {
	unread *share.Budget
	host   string
	most   int // bytes of a message
	asked  int // bytes for which there was room
	bytes  int // the last that were asked for
}

func (f *front) room(ctx context.Context, unread *share.Budget) *answerRoom {
	return &answerRoom{unread: unread, host: hostOf(ctx), most: f.answerBytes()}
}

// Room is asked for about as many bytes as an answer takes in memory, which is at most twice
// as many as in a message: so it refuses no answer that would fit. Errors: InvalidParams for
// one that fits no message, Unavailable.
func (r *answerRoom) Room(bytes int) error {
	if r.bytes = bytes; bytes > 2*r.most {
		return r.tooLarge()
	}
	if bytes < r.asked+roomStep {
		return nil
	}
	if err := unreadRoom(r.unread, r.host, int64(bytes)); err != nil {
		return err
	}
	r.asked = bytes
	return nil
}

// fits returns an answer, or an error if it fits no message.
func fits[M proto.Message](r *answerRoom, answer M) (M, error) {
	if r.bytes > r.most && proto.Size(answer) > r.most {
		var none M
		return none, r.tooLarge()
	}
	return answer, nil
}

func (r *answerRoom) tooLarge() error {
	return errs.New(errs.InvalidParams, "", "the answer takes more than the %d bytes of a message; ask for less at once, or raise --max-message-bytes", r.most)
}

// unreadRoom returns an error if there is no room for an answer of so many bytes.
func unreadRoom(unread *share.Budget, host string, bytes int64) error {
	room, all, own := unread.Take(host, bytes)
	if !room {
		return errs.New(errs.Unavailable, "", "%d bytes of answers to you are not read yet, of all %d; read them, or ask for less at once", own, all)
	}
	unread.GiveBack(host, bytes) // it is taken when its size is known
	return nil
}
