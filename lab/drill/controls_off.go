//go:build !drills

package drill

// ControlsBuilt says whether this build can leave out safeguards, to show that
// the drills notice.
const ControlsBuilt = false
