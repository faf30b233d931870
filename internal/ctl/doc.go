// Package ctl is the command line of operators, of programs that script a
// cluster, and of the demo: the program masterctl.
//
// Each command reads its flags, makes its calls, and prints one result: as a
// table for people, or as JSON for programs. Results go to the command's
// output; what is said besides (progress, advice, errors) goes to its error
// output. A command never moves the bytes of objects: like the master it deals
// with metadata only.
//
// The package must never judge the state of a cluster by itself; it shows what
// the nodes say.
package ctl
