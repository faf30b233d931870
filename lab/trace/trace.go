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
//   - An id stands for a block with all that comes before it: each id has the same id in front of it wherever it occurs, so
//     a request's hits are always its first blocks. No request has an id twice. Ids are numbered as they appear.
//   - All requests share block 0. Of the other hits, nearly all come from turns of one conversation: 33 % of the requests
//     begin with all blocks of an earlier one but perhaps its last, 6 % part from it earlier, 61 % are new.
//     The number of conversations with at least k turns falls like 1/(k+1)^3; the longest has 43.
//   - The next turn comes after 123 s in the median, 474 s at 90 %. It mostly adds the last answer and a few words; one in
//     ten adds more than 4,200 tokens.
//   - Timestamps are multiples of 3 s within 3 ms, never go back, and have 10.2 requests each. A minute has 144 to 247, rising
//     by 27 % over the hour (straight line through the counts).
//
// The figures of both, which this package's tests measure; of the generator, mean and range of seeds 0 to 19 with the default
// of 3,000 requests, which refer to 68,400 to 79,200 blocks:
//
//	                    conversation   generated
//	blocks, mean            23.98      24.71    22.80 to 26.39    blocks of a request
//	blocks, 50 %            14         14.6     13 to 16
//	blocks, 90 %            54         55.3     50 to 62
//	blocks, 99 %           167        174      147 to 211
//	blocks, max            247        245      240 to 250
//	new conversations       61.3 %     64.9 %   62.2 to 67.0 %    requests that share at most block 0 with earlier ones
//	endless                 36.6 %     37.1 %   34.4 to 41.2 %    Stats.HitRate
//	LRU 1/2                 36.3 %     37.0 %   34.3 to 41.2 %    LRUHitRate for half of the distinct blocks,
//	LRU 1/4                 35.4 %     36.3 %   33.9 to 40.4 %    and so on: the part of the references whose
//	LRU 1/10                27.8 %     29.8 %   28.2 to 33.1 %    reuse distance, in distinct blocks, is below
//	LRU 1/50                 7.9 %      9.0 %    7.7 to 10.3 %    that size
//	bursts                   2.48       1.69     1.49 to 2.02     variance to mean of the requests in 30 s
//	second half             53.4 %     52.7 %   50.5 to 54.8 %    requests in the second half of the time
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
