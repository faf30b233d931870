package drill

// A drill is a script. Like a test, it ends at the first step that fails: do and must
// panic, and script returns the panic as an error. Only the goroutine that runs the
// script may call do and must; other goroutines return their errors.

// aborted is the value of such a panic.
type aborted struct{ err error }

// do ends the script if a step has failed.
func do(err error) {
	if err != nil {
		panic(aborted{err})
	}
}

// must is do for a step that has a result.
func must[T any](v T, err error) T {
	do(err)
	return v
}

// script runs a script, or a part of one, and returns the error that ended it.
func script(steps func()) (err error) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case aborted:
			err = end.err
		default:
			panic(end)
		}
	}()
	steps()
	return nil
}
