// Package ctl is the command line of operators, and of programs that script a
// cluster: the program masterctl.
//
// Each command reads its flags, makes its calls, and prints one result: as a
// table for people, or as JSON for programs. Results go to the command's output;
// progress, advice and errors go to its error output. The types named xResult and
// xList are what the command x prints as JSON. A command never moves the bytes of
// objects: like the master it deals with metadata only.
//
// The package must never judge the state of a cluster by itself; it shows what
// the nodes report. The command doctor compares figures with bounds that the
// documents name.
package ctl
