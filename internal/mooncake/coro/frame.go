package coro

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

// Magic is the first byte of every frame, and so of every connection.
const Magic = 21

// Bytes of the headers.
const (
	requestHeader  = 20
	responseHeader = 16
)

// Codes of errors that a response can carry instead of an answer. After any of them the
// original client closes its connection.
const (
	CodeInvalidArguments = 4
	CodeException        = 10
	CodeNotRegistered    = 11
)

// ErrProtocol means that a peer does not speak the protocol, or not this form
// of it.
var ErrProtocol = errors.New("this is not coro_rpc")

// A request is the header of one.
type request struct {
	seq        uint32
	function   uint32
	body       uint32 // bytes
	attachment uint32 // bytes
}

func appendRequest(b []byte, r request) []byte {
	b = append(b, Magic, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, r.seq)
	b = binary.LittleEndian.AppendUint32(b, r.function)
	b = binary.LittleEndian.AppendUint32(b, r.body)
	return binary.LittleEndian.AppendUint32(b, r.attachment)
}

func parseRequest(b []byte) (request, error) {
	switch {
	case b[0] != Magic:
		return request{}, fmt.Errorf("%w: a frame begins with %d, not with %d", ErrProtocol, b[0], Magic)
	case b[1] != 0:
		return request{}, fmt.Errorf("%w: its version is %d; 0 is known", ErrProtocol, b[1])
	case b[2] != 0:
		return request{}, fmt.Errorf("%w: its serialization is %d; 0, struct_pack, is known", ErrProtocol, b[2])
	}
	return request{
		seq:        binary.LittleEndian.Uint32(b[4:]),
		function:   binary.LittleEndian.Uint32(b[8:]),
		body:       binary.LittleEndian.Uint32(b[12:]),
		attachment: binary.LittleEndian.Uint32(b[16:]),
	}, nil
}

// A response is the header of one.
type response struct {
	code       byte
	seq        uint32
	body       uint32 // bytes
	attachment uint32 // bytes
}

// putResponse writes the header over the first bytes of a frame.
func putResponse(frame []byte, r response) {
	frame[0], frame[1], frame[2], frame[3] = Magic, 0, r.code, 0
	binary.LittleEndian.PutUint32(frame[4:], r.seq)
	binary.LittleEndian.PutUint32(frame[8:], r.body)
	binary.LittleEndian.PutUint32(frame[12:], r.attachment)
}

func parseResponse(b []byte) (response, error) {
	if b[0] != Magic || b[1] != 0 {
		return response{}, fmt.Errorf("%w: an answer begins with %d, %d", ErrProtocol, b[0], b[1])
	}
	return response{
		code:       b[2],
		seq:        binary.LittleEndian.Uint32(b[4:]),
		body:       binary.LittleEndian.Uint32(b[8:]),
		attachment: binary.LittleEndian.Uint32(b[12:]),
	}, nil
}

// readBody returns the next n bytes as a string of their own. It makes room for eager
// bytes at once, and for further ones as they come, not as they are announced.
func readBody(r *bufio.Reader, n, eager uint32) (string, error) {
	switch {
	case n == 0:
		return "", nil
	case int(n) <= r.Size():
		b, err := r.Peek(int(n))
		if err != nil {
			return "", cut(err)
		}
		body := string(b)
		_, err = r.Discard(int(n))
		return body, err
	}
	var body strings.Builder
	body.Grow(int(min(n, eager)))
	_, err := io.CopyN(&body, r, int64(n))
	return body.String(), cut(err)
}

// appendBody appends the next n bytes to b, and makes room for them as they come.
func appendBody(r *bufio.Reader, b []byte, n uint32) ([]byte, error) {
	for n > 0 {
		piece := min(n, pieceBytes)
		b = slices.Grow(b, int(piece))
		room := b[len(b) : len(b)+int(piece)]
		if _, err := io.ReadFull(r, room); err != nil {
			return nil, cut(err)
		}
		b = b[:len(b)+len(room)]
		n -= piece
	}
	return b, nil
}

func skip(r *bufio.Reader, n uint32) error {
	if n == 0 {
		return nil
	}
	_, err := r.Discard(int(n))
	return cut(err)
}

// cut is the error of a connection that ends inside a frame.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// An Error is a response that carries no answer. It is for defects of the
// transport; what a call itself has to say goes in its answer.
type Error struct {
	Code    byte
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("coro_rpc error %d: %s", e.Code, e.Message) }

// errorMessage is how an error's text travels.
var errorMessage = structpack.NewMessage(structpack.Text)
