package mooncakeserver

import "time"

// SetDeadline changes how long a call may take, before there are any.
func (f *Front) SetDeadline(d time.Duration) { f.deadline = d }

// CodeNotServing is what a relay is refused with.
const CodeNotServing = codeNotServing

// SelectGeneration returns the function with which a relay begins.
func SelectGeneration() uint32 { return selectGeneration }
