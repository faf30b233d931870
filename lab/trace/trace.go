// Package trace reads, generates and measures traces of requests to an LLM server: the load that lab's demo and
// replay commands play. It must never know how the load is played, and takes nothing from the clock or the environment.
//
// A file is a list of JSON objects, one a line, plain or gzip, in the format of the Mooncake project's traces: timestamp in
// milliseconds, input_length and output_length in tokens, and hash_ids, the ids of the input's blocks of 512 tokens.
//
// # The conversation trace
//
// Generate imitates Mooncake's conversation trace, which is an hour of chat: 12,031 requests with 288,500 block references
// to 182,790 distinct blocks. The following was measured once, by a script over the whole file:
//
//   - An id stands for a block and everything before it: wherever an id occurs, the same id precedes it. So a request's hits
//     are always its first blocks. No request has an id twice. Ids are numbered in order of their first occurrence.
//   - All requests share block 0. Nearly all other hits come from turns of one conversation: 33 % of the requests begin with
//     all blocks of an earlier one, perhaps without its last; 6 % differ from it earlier; 61 % are new.
//     The number of conversations with at least k turns falls like 1/(k+1)^3; the longest has 43.
//   - The next turn comes after 123 s in the median, 474 s at 90 %. It mostly adds the last answer and a few words; one in
//     ten adds more than 4,200 tokens.
//   - Timestamps are multiples of 3 s within 3 ms, never go back, and have 10.2 requests each. A minute has 144 to 247, rising
//     by 27 % over the hour (straight line through the counts).
//
// shape_test.go has, and measures, the figures of both traces.
//
// What the generator leaves out: requests without a new block (1 % of the conversation trace), and conversations that
// fork into two. Its long conversations grow longer than the real ones. Its bursts are below the conversation trace's 2.48;
// a random quarter of that trace would have (2.48-1)/4 + 1 = 1.37.
package trace

import "time"

// BlockTokens is the number of tokens in a block.
const BlockTokens = 512

// A BlockID names a block's content together with everything before it, so equal ids mean equal prefixes.
type BlockID uint64

// A Request is one call to an LLM server.
type Request struct {
	// At is the time of arrival by the trace's own clock, 0 or more, in whole milliseconds.
	At time.Duration
	// InputTokens is the length of the prompt.
	InputTokens uint32
	// OutputTokens is the length of the answer.
	OutputTokens uint32
	// Blocks are the prompt's blocks from its beginning, the last of them perhaps not full. There is at least one.
	// They belong to the trace and must not be changed.
	Blocks []BlockID
}

// A Trace is a list of requests in the order of their arrival.
type Trace struct {
	Requests []Request
}

// Stats are the figures of a trace.
type Stats struct {
	Requests   int
	References int // blocks of all requests
	Distinct   int // different blocks
	// HitRate is the hit rate of an unlimited cache: the share, from 0 to 1, of the references whose block was referenced
	// before. It is 1 - Distinct/References.
	HitRate float64
	// Duration is the time from the first request to the last.
	Duration time.Duration
}

// Stats computes the trace's figures.
func (t *Trace) Stats() Stats {
	s := Stats{Requests: len(t.Requests)}
	seen := make(map[BlockID]struct{})
	for _, r := range t.Requests {
		s.References += len(r.Blocks)
		for _, b := range r.Blocks {
			seen[b] = struct{}{}
		}
	}
	s.Distinct = len(seen)
	if s.References > 0 {
		s.HitRate = 1 - float64(s.Distinct)/float64(s.References)
		s.Duration = t.Requests[len(t.Requests)-1].At - t.Requests[0].At
	}
	return s
}
