package client_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

func TestConfigFaults(t *testing.T) {
	good := client.Config{Addresses: []string{"127.0.0.1:1", "localhost:2", "[::1]:3"}}
	for name, tc := range map[string]struct {
		change func(*client.Config)
		want   []string
	}{
		"nobody to ask":    {func(c *client.Config) { c.Addresses = nil }, []string{"neither Addresses nor EtcdEndpoints"}},
		"a bad address":    {func(c *client.Config) { c.Addresses[0] = "host" }, []string{`"host", which is not host:port`}},
		"no port":          {func(c *client.Config) { c.Addresses[0] = "host:" }, []string{`"host:"`}},
		"many addresses":   {func(c *client.Config) { c.Addresses = make([]string, client.MaxAddresses+1) }, []string{"65 entries"}},
		"cluster id":       {func(c *client.Config) { c.ClusterID = "a/b" }, []string{`"a/b"`}},
		"tenant":           {func(c *client.Config) { c.Tenant = strings.Repeat("x", 257) }, []string{"257 bytes"}},
		"times":            {func(c *client.Config) { c.Timeout, c.PingInterval = -1, -time.Second }, []string{"Timeout is -1ns", "PingInterval is -1s"}},
		"over what":        {func(c *client.Config) { c.TLS, c.Transport = new(tls.Config), transport(t, "head") }, []string{"Transport is set"}},
		"files over what":  {func(c *client.Config) { c.TLSFiles.CA, c.Transport = "ca.crt", transport(t, "head") }, []string{"Transport is set"}},
		"two kinds of TLS": {func(c *client.Config) { c.TLS, c.TLSFiles.CA = new(tls.Config), "ca.crt" }, []string{"TLS and TLSFiles are set"}},
		"a certificate":    {func(c *client.Config) { c.EtcdTLSFiles.Cert = "a.crt" }, []string{"EtcdTLSFiles has a Cert or a Key alone"}},
		"plain tokens":     {func(c *client.Config) { c.TokenFile = "token" }, []string{"TokenFile is set, and TLS is not"}},
		"two tokens":       {func(c *client.Config) { c.TLS, c.TokenFile, c.Token = new(tls.Config), "token", "t" }, []string{"Token and TokenFile are set"}},
		"missing files": {func(c *client.Config) {
			c.TLSFiles.CA, c.EtcdTLSFiles.CA, c.TokenFile = "no/ca.crt", "no/etcd.crt", "no/token"
		}, []string{"TLSFiles: open no/ca.crt", "EtcdTLSFiles: open no/etcd.crt", "TokenFile: open no/token"}},
		"message size":     {func(c *client.Config) { c.MaxMessageBytes = -1 }, []string{"MaxMessageBytes is -1"}},
		"etcd cannot be":   {func(c *client.Config) { c.EtcdEndpoints = []string{"http://\x00"} }, []string{"etcd endpoints"}},
		"all faults named": {func(c *client.Config) { c.Addresses, c.ClusterID, c.Timeout = nil, "/", -1 }, []string{"neither", "ClusterID", "Timeout"}},
	} {
		config := good
		config.Addresses = append([]string(nil), good.Addresses...)
		tc.change(&config)
		c, err := client.New(config)
		wantKind(t, name, err, errs.InvalidParams)
		if err == nil {
			c.Close()
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q in it", name, err, want)
			}
		}
	}
}

func TestClientID(t *testing.T) {
	a, b := connect(t, client.Config{Addresses: []string{"127.0.0.1:1"}}), connect(t, client.Config{Addresses: []string{"127.0.0.1:1"}})
	if a.ID() == b.ID() || a.ID() == uuid.Nil {
		t.Errorf("ids %v and %v; want two different ones, neither of them nil", a.ID(), b.ID())
	}
	mine := uuid.New()
	if c := connect(t, client.Config{Addresses: []string{"127.0.0.1:1"}, ClientID: mine}); c.ID() != mine {
		t.Errorf("id %v, want %v", c.ID(), mine)
	}
}
