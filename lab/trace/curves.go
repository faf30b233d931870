package trace

// The curves are percentiles of the conversation trace. They were measured as follows. A request's known blocks are those
// of earlier requests. It is the next turn of the latest request that has its last known block, unless that is block 0. It is
// a rewriting turn if it has fewer known blocks than that request has blocks, not counting the last one.
var (
	// arrivalTicks is when requests arrive: the rate grows by 27 % over the hour.
	arrivalTicks = curve{{0, 0}, {500, 630}, {1000, 1180}}

	// firstInput is the input of a conversation's first request, in tokens.
	firstInput = curve{
		{0, 891}, {50, 897}, {100, 905}, {200, 1092}, {300, 1756}, {400, 3914}, {500, 5264}, {600, 7417}, {700, 10775},
		{800, 15871}, {900, 25561}, {950, 38538}, {980, 67212}, {990, 89869}, {995, 111800}, {1000, 126195},
	}

	// outputTokens is the length of an answer.
	outputTokens = curve{
		{0, 1}, {50, 10}, {100, 24}, {200, 100}, {300, 213}, {400, 291}, {500, 350}, {600, 399}, {700, 447}, {800, 504},
		{900, 597}, {950, 698}, {980, 893}, {990, 1120}, {999, 2000}, {1000, 2000},
	}

	// messageTokens is what a turn adds to the conversation so far: mostly a short question, sometimes a document. The
	// conversation trace has values below 0 too, where a history was trimmed; here they are 0.
	messageTokens = curve{
		{0, 0}, {100, 0}, {200, 7}, {300, 11}, {400, 16}, {500, 26}, {600, 52}, {700, 172}, {750, 356}, {800, 695},
		{900, 4203}, {950, 6922}, {980, 11742}, {990, 16705}, {995, 22478}, {999, 38787}, {1000, 91467},
	}

	// keptPermille is how much of the conversation so far a rewriting turn keeps, in thousandths.
	keptPermille = curve{
		{0, 8}, {100, 38}, {200, 59}, {300, 94}, {400, 129}, {500, 179}, {600, 263}, {700, 364}, {800, 507}, {900, 818}, {1000, 986},
	}

	// rewrittenTokens is what follows the part that a rewriting turn keeps.
	rewrittenTokens = curve{
		{0, 10}, {50, 894}, {100, 1707}, {200, 4969}, {300, 7013}, {400, 8540}, {500, 9567}, {600, 10946}, {700, 13687},
		{800, 15907}, {900, 19913}, {950, 26597}, {990, 43120}, {1000, 94968},
	}

	// turnGap is the time from one turn to the next, in seconds.
	turnGap = curve{
		{0, 0}, {50, 27}, {100, 39}, {200, 57}, {300, 74}, {400, 95}, {500, 123}, {600, 162}, {700, 225}, {800, 318},
		{900, 474}, {950, 606}, {980, 972}, {990, 1458}, {995, 1913}, {1000, 3030},
	}
)
