package ctl

import (
	"testing"

	"github.com/spf13/pflag"
)

// A node is named as in --join: by its host alone, if its port is the default one.
func TestAddressesOfNodes(t *testing.T) {
	for given, want := range map[string]string{
		"a:1": "a:1", "a": "a:50051", "10.0.0.1": "10.0.0.1:50051", "[::1]:1": "[::1]:1", "::1": "[::1]:50051", "[::1]": "[::1]:50051",
		"": "", "a:": "", ":1": "", "a:1:2": "", "http://a:1": "", "a b": "",
	} {
		var f Flags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.bind(flags)
		err := flags.Set("address", given+",")
		if got := append(f.addresses, "")[0]; got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q, %v; want %q", given, got, err, want)
		}
	}
}
