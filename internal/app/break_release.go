//go:build !drills

package app

import "github.com/spf13/pflag"

// bindBreak adds no flag: only a build for fault drills has one.
func bindBreak(*pflag.FlagSet) {}
