package httpapi

import "time"

// SetPace sets how fast a list of all keys must be read, for the next Handler: within which
// time a page, and how many bytes a second on the whole.
func (a *API) SetPace(page time.Duration, rate int64) { a.pace = pace{page, rate} }
