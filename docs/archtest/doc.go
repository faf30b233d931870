// Package archtest holds the architecture of this module as tests: which
// package may import which, by itself or through others, where the wall clock may
// be read, how long files and functions may be, and that every package says what
// it is for.
//
// The rules stand in rules_test.go, one table. They parse the sources in this
// process and need nothing installed. A rule applies to the packages that
// exist, so it may be written before its package is. Every rule has a sample
// that breaks it in samples_test.go: a rule that cannot fail is refused.
package archtest
