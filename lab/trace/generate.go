package trace

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"
)

// DefaultRequests is the size of a generated trace when Options names none: about a quarter of the conversation trace.
const DefaultRequests = 3000

// Options says what Generate makes.
type Options struct {
	// Seed picks the trace: equal options give equal traces, on every machine and Go version.
	Seed uint64
	// Requests is the number of requests; 0 or less means DefaultRequests. A request takes about 300 bytes of memory.
	// Arrivals are spread over an hour whatever the number, so a larger trace is a busier one, with the same
	// conversations and much the same hit rates.
	Requests int
}

const (
	// tick is the resolution of the conversation trace's timestamps.
	tick = 3 * time.Second
	// maxInput is the context window, in tokens; the conversation trace's longest input is 126,195.
	maxInput = 128_000
	// systemPrompt is the block that all requests begin with.
	systemPrompt BlockID = 0
	// rewriteShare is the share, in percent, of later turns that change an earlier part of their conversation.
	rewriteShare = 15
	// burstShare is the share, in percent, of arrivals that follow the one before within burstTicks.
	burstShare = 30
	burstTicks = 5
)

// Generate makes a trace of the conversation trace's shape: users who hold conversations of several turns, where each turn
// sends the whole conversation again and adds to it. shape_test.go compares the two.
func Generate(o Options) *Trace {
	if o.Requests <= 0 {
		o.Requests = DefaultRequests
	}
	g := generator{dice: dice{rand.NewPCG(o.Seed, 0)}, nextBlock: systemPrompt + 1}
	t := &Trace{Requests: make([]Request, 0, o.Requests)}
	for _, at := range g.arrivals(o.Requests) {
		t.Requests = append(t.Requests, g.request(at))
	}
	return t
}

// A generator plays the users. Blocks are numbered in the order in which they first appear.
type generator struct {
	dice      dice
	nextBlock BlockID
	waiting   []*conversation // between two turns, the one that is due last first
}

// A conversation is the state that its next turn builds on.
type conversation struct {
	due    time.Duration // when the next turn comes
	serial BlockID       // id of its first new block; orders conversations that are due at the same time
	turns  uint64
	input  int64     // tokens of the last request
	output int64     // tokens of its answer
	blocks []BlockID // of the last request, which shares them: never written
}

func (g *generator) arrivals(n int) []time.Duration {
	ticks := make([]int64, n)
	for i := range ticks {
		if i > 0 && g.dice.percent(burstShare) {
			ticks[i] = ticks[i-1] + int64(g.dice.below(burstTicks))
		} else {
			ticks[i] = arrivalTicks.draw(&g.dice)
		}
	}
	slices.Sort(ticks)

	at := make([]time.Duration, n)
	for i := range ticks {
		at[i] = time.Duration(ticks[i]-ticks[0]) * tick
	}
	return at
}

// request returns the request that arrives at the given time: the next turn of the conversation that has waited longest
// for it, or the first turn of a new one if no turn is due.
func (g *generator) request(at time.Duration) Request {
	c := g.continued(at)
	if c == nil {
		c = &conversation{serial: g.nextBlock, input: firstInput.draw(&g.dice)}
		c.blocks = g.extend([]BlockID{systemPrompt}, c.input)
	}
	c.output = outputTokens.draw(&g.dice)
	c.turns++
	r := Request{
		At:           at,
		InputTokens:  uint32(c.input),
		OutputTokens: uint32(c.output),
		Blocks:       c.blocks,
	}
	if g.hasNextTurn(c.turns) {
		c.due = at + time.Duration(turnGap.draw(&g.dice))*time.Second
		g.wait(c)
	}
	return r
}

// continued takes the conversation that has waited longest, gives it its next input and returns it, or nil if none is due.
// A conversation that would outgrow the context window ends.
func (g *generator) continued(at time.Duration) *conversation {
	for n := len(g.waiting); n > 0 && g.waiting[n-1].due <= at; n-- {
		c := g.waiting[n-1]
		g.waiting = g.waiting[:n-1]
		kept := c.input / BlockTokens
		input := c.input + c.output + messageTokens.draw(&g.dice)
		if g.dice.percent(rewriteShare) {
			kept = max(min(kept, 2), kept*keptPermille.draw(&g.dice)/1000) // the prompt and a block of its own
			input = kept*BlockTokens + rewrittenTokens.draw(&g.dice)
		}
		if input <= maxInput {
			c.input = input
			c.blocks = g.extend(c.blocks[:kept], input)
			return c
		}
	}
	return nil
}

// wait lets a conversation wait until its next turn is due.
func (g *generator) wait(c *conversation) {
	i, _ := slices.BinarySearchFunc(g.waiting, c, func(a, b *conversation) int {
		return cmp.Or(cmp.Compare(b.due, a.due), cmp.Compare(b.serial, a.serial))
	})
	g.waiting = slices.Insert(g.waiting, i, c)
}

// hasNextTurn draws whether a conversation goes on after a number of turns. The chance that it has at least k turns falls
// as 1/(k+4/3)^3, a Zipf-Mandelbrot law.
func (g *generator) hasNextTurn(turns uint64) bool {
	n, d := 3*turns+4, 3*turns+7
	return g.dice.below(d*d*d) < n*n*n
}

// extend returns a copy of the blocks, followed by new ones up to the given number of tokens.
func (g *generator) extend(blocks []BlockID, tokens int64) []BlockID {
	n := int(tokens+BlockTokens-1) / BlockTokens
	extended := make([]BlockID, len(blocks), n)
	copy(extended, blocks)
	for len(extended) < n {
		extended = append(extended, g.nextBlock)
		g.nextBlock++
	}
	return extended
}

// dice draws from a source whose sequence is specified. It uses whole numbers only, because the results of floating point
// and of the methods of rand.Rand may differ between machines and Go versions.
type dice struct{ src *rand.PCG }

// below returns a number in [0, n). Its bias is below n/2^64.
func (d *dice) below(n uint64) uint64 {
	hi, _ := bits.Mul64(d.src.Uint64(), n)
	return hi
}

func (d *dice) percent(share uint64) bool { return d.below(100) < share }

// A curve is a distribution by its measured percentiles, with linear interpolation between them.
type curve []point

// A point says that the given part of all values, in thousandths, is at most value.
type point struct {
	permille int64
	value    int64
}

const curveScale = 1000 // steps between two permilles

func (c curve) draw(d *dice) int64 {
	u := int64(d.below(1000 * curveScale))
	i := 1
	for u >= c[i].permille*curveScale {
		i++
	}
	from, to := c[i-1], c[i]
	return from.value + (u-from.permille*curveScale)*(to.value-from.value)/((to.permille-from.permille)*curveScale)
}
