package coro

import (
	"fmt"

	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

// An Error is a response that carries no answer. It is for defects of the
// transport; what a call itself has to say goes in its answer.
type Error struct {
	Code    byte
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("coro_rpc error %d: %s", e.Code, e.Message) }

// errorMessage is how an error's text travels.
var errorMessage = structpack.NewMessage(structpack.Text)
