package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Write writes the trace as JSON lines, plain, in the form that Read takes. Requests that it could not read back, such as
// one that arrives before the one in front of it, are errors.
func (t *Trace) Write(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	out := json.NewEncoder(buffered)
	var previous Request
	for i, r := range t.Requests {
		if err := r.check(previous.At); err != nil {
			return fmt.Errorf("write trace: request %d: %w", i, err)
		}
		timestamp := uint64(r.At.Milliseconds())
		rec := record{Timestamp: &timestamp, InputLength: &r.InputTokens, OutputLength: &r.OutputTokens, HashIDs: r.Blocks}
		if err := out.Encode(rec); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
		previous = r
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}
