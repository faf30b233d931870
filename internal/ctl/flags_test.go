package ctl

import (
	"path/filepath"
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

// An error about a flag that has its value from the environment names the variable, too.
func TestErrorsNameVariables(t *testing.T) {
	for variable, want := range map[string]string{
		"TLS_CERT":           "--tls-ca, --tls-cert (set by UNDERSTUDY_TLS_CERT), --tls-key: a certificate",
		"TLS_CA":             "--tls-ca (set by UNDERSTUDY_TLS_CA), --tls-cert, --tls-key: open ",
		"TOKEN_FILE":         "--token-file (set by UNDERSTUDY_TOKEN_FILE): it needs --tls-ca",
		"ETCD_CA":            "--etcd-ca (set by UNDERSTUDY_ETCD_CA), --etcd-cert, --etcd-key: open ",
		"ETCD_USER":          "--etcd-user (set by UNDERSTUDY_ETCD_USER), --etcd-password-file must be given together",
		"ETCD_PASSWORD_FILE": "--etcd-user, --etcd-password-file (set by UNDERSTUDY_ETCD_PASSWORD_FILE) must be given together",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("UNDERSTUDY_"+variable, filepath.Join(t.TempDir(), "none"))
			run(t, "get", "k").WantMisuse(t, want)
		})
	}
	t.Setenv("UNDERSTUDY_ETCD_ENDPOINTS", deadAddress(t))
	run(t, "status", "--timeout=300ms").Want(t, critical, "check --etcd-endpoints (set by UNDERSTUDY_ETCD_ENDPOINTS), --etcd-user")
}
