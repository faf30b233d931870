//go:build !drills

package sim

// prepare has something to do in builds for drills only.
func prepare() {}
