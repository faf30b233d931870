package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/understudy-store/understudy/promote"
)

// needsHA reports whether a setting of Mooncake's matters with HA only. A lone primary takes any
// value of it, as Mooncake's master does.
func needsHA(name string) bool {
	return name == etcdEndpoints || name == backendConnstring || name == "ha_backend_type"
}

// apply writes the given values into the fields. It warns of names that are accepted without
// effect.
func (l *loader) apply(cfg *Config) {
	ha, known := parseBool(l.given["enable_ha"].text)
	alone := known && !ha
	for _, s := range settings(cfg) {
		g, ok := l.given[s.name()]
		switch {
		case !ok:
		case !utf8.ValidString(g.text): // a name that is not UTF-8 would break every answer that holds it
			l.fault(s.name(), g, "must be text in UTF-8")
		case s.set(g.text):
		case alone && needsHA(s.name()):
			l.warn(s.name(), g, withoutHA)
		default:
			l.fault(s.name(), g, "must be "+s.Allowed)
		}
	}
	for _, s := range Unused() {
		g, ok := l.given[s.name()]
		switch {
		case !ok:
		case s.set(g.text):
			if s.asksFor(g.text) {
				l.warn(s.name(), g, "accepted and not used: "+s.Usage)
			}
		case alone && needsHA(s.name()):
			l.warn(s.name(), g, withoutHA)
		default:
			l.fault(s.name(), g, "must be "+s.Allowed+": "+s.Usage)
		}
	}
}

// judge checks the rules between fields, after each was checked alone. It skips rules about a
// faulty setting, since that still has its default.
func (l *loader) judge(cfg *Config) {
	faulty := map[string]bool{}
	for _, f := range l.faults {
		faulty[f.Name] = true
	}
	values := map[string]given{}
	for _, s := range settings(cfg) {
		values[s.name()] = given{text: s.String(), origin: cmp.Or(l.given[s.name()].origin, "default")}
	}
	broken := func(rules []rule, report func(name string, g given, text string)) {
		for _, r := range rules {
			names := strings.Fields(r.names)
			if !r.holds && !slices.ContainsFunc(names, func(n string) bool { return faulty[n] }) {
				report(names[0], values[names[0]], r.text)
			}
		}
	}
	broken(advice(cfg), l.warn)
	broken(rules(cfg), l.fault)
	if g := l.given["enable_ha"]; g.file && !cfg.HA.Enabled && len(cfg.HA.EtcdEndpoints) == 0 {
		l.warn("enable_ha", g, "in a file, as in Mooncake's, turns off here what is on by default: "+loneNode+
			"; for HA leave it out or say true, with etcd_endpoints or without, where the node runs an etcd of its own")
	}
}

// withoutHA says why a setting that needsHA has no effect.
const withoutHA = "is not used, because enable_ha is false"

// loneNode is what a node is without HA.
const loneNode = "this is a lone primary without a journal or standbys, and a restart loses the cache"

// rule is what must or should hold between settings.
type rule struct {
	names string // the settings involved; a broken rule is reported under the first
	holds bool
	text  string // what must hold; for advice, what follows if it does not
}

func rules(c *Config) []rule {
	standby := c.Role == Standby
	return append(slices.Concat(portRules(c), securityRules(c), memberRules(c)), []rule{
		{"enable_ha", !standby || c.HA.Enabled, "must be true for a standby: it follows a primary through etcd"},
		{"etcd_endpoints join enable_ha", !standby || !c.HA.Embedded() || len(c.HA.Join) > 0,
			"must be given for a standby: name the etcd that its primary uses; or with join a node whose etcd it becomes a member of"},
		{"start-empty", !standby || !c.HA.StartEmpty, "is not for a standby, which never starts empty; give it to a master"},
		{"etcd-listen etcd_endpoints enable_ha", !c.HA.Embedded() || !unspecified(hostOf(c.HA.EtcdListen)),
			"must name one address that standbys can dial, such as 10.0.0.1:2379, or 127.0.0.1:0 if there are none; " +
				"all interfaces is no address to dial"},
		{"events-ttl session-ttl", c.Journal.EventsTTL > c.HA.SessionTTL, fmt.Sprintf(
			"must be longer than session-ttl (%s): a new primary reads what the old one wrote", formatDuration(c.HA.SessionTTL))},
		{"failover-after session-ttl", c.HA.FailoverAfter <= c.HA.SessionTTL, fmt.Sprintf(
			"must be at most session-ttl (%s): the election lease is the longest that a dead primary is waited for", formatDuration(c.HA.SessionTTL))},
		{"lease-critical-delay lease-critical-window", c.Lease.CriticalDelay < c.Lease.CriticalWindow, fmt.Sprintf(
			"must be shorter than lease-critical-window (%s): the renewal must be journaled before the lease runs out",
			formatDuration(c.Lease.CriticalWindow))},
		{"default_kv_soft_pin_ttl max_kv_soft_pin_ttl", c.Lease.SoftPinTTL <= c.Lease.MaxSoftPinTTL, fmt.Sprintf(
			"must be at most max_kv_soft_pin_ttl (%s)", formatDuration(c.Lease.MaxSoftPinTTL))},
		{"put_start_release_timeout_sec put_start_discard_timeout_sec", c.Put.ReleaseTimeout > c.Put.DiscardTimeout, fmt.Sprintf(
			"must be longer than put_start_discard_timeout_sec (%s): a writer may still write to memory of a discarded put",
			formatDuration(c.Put.DiscardTimeout))},
		{"journal-max-bytes etcd-quota-bytes etcd_endpoints enable_ha",
			!c.HA.Embedded() || c.Journal.MaxBytes <= c.HA.EtcdQuotaBytes/5*2, fmt.Sprintf(
				"must be at most two fifths of etcd-quota-bytes (%s): the embedded etcd stores the journal, "+
					"and as much again until the next compaction; from 90 %% on it takes no changes", formatSize(c.HA.EtcdQuotaBytes))},
	}...)
}

// advice returns rules that a configuration may break, but seldom on purpose.
func advice(c *Config) []rule {
	// Nobody else can follow this node.
	local := c.HA.Embedded() && loopback(hostOf(c.HA.EtcdListen)) && (!c.HA.Members() || loopback(hostOf(c.PeerAddress())))
	return []rule{
		{"etcd_endpoints enable_ha", c.HA.Enabled || len(c.HA.EtcdEndpoints) == 0,
			withoutHA + ": " + loneNode + "; enable_ha is true by default here, and false by default in Mooncake"},
		{"etcd-user etcd-ca etcd_endpoints", c.Security.EtcdUser == "" || c.Etcd().Given(),
			"goes to etcd without TLS, with its password; give https endpoints and etcd-ca"},
		{"allocation_strategy", c.Storage.AllocationStrategy != allocateCXL,
			"is not offered, so segments are chosen at random"},
		{"enable_metadata_cleanup_on_timeout enable_http_metadata_server", c.Listen.Metadata || !c.Listen.MetadataCleanup,
			"is not used without enable_http_metadata_server"},
		{"tenant_quota_connector_uri enable_multi_tenants", c.Tenants.Enabled || c.Tenants.ConnectorURI == "",
			"is not used without enable_multi_tenants"},
		{"tenant_quota_connector_type", c.Tenants.Connector != QuotasInEtcd,
			"is not used: quotas are part of the state, so they are in the journal, and tenant_quota_connector_uri is not read"},
		{"offload_on_evict enable_offload", c.Storage.Offload || !c.Storage.OffloadOnEvict,
			"is not used without enable_offload"},
		{"promotion_on_hit enable_offload", c.Storage.Offload || !c.Storage.Promotion.On,
			"is not used without enable_offload"},
		{"promotion-cleanup eviction-policy", c.HA.PromotionCleanup != promote.CleanupExpired || c.Eviction.Policy != EvictWatermark,
			"each takeover will drop every object whose lease has run out, which under eviction-policy=watermark is most of a healthy cache; " +
				"auto keeps it"},
		{"advertise-address rpc_address etcd-listen etcd_endpoints enable_ha",
			!c.HA.Enabled || local || c.Node.AdvertiseAddress != "" || !unspecified(c.Listen.RPCAddress),
			"the node listens on all interfaces, so it will advertise 127.0.0.1, which only this machine can dial; " +
				"give the address that peers and clients should use"},
		{"journal-compact etcd_endpoints enable_ha", !c.HA.Embedded() || c.Journal.Compact != CompactOff,
			"leaves the embedded etcd to grow until it is full and takes no changes, as nobody else compacts it; auto does"},
		{"trace-ratio trace-endpoint", c.Debug.TraceEndpoint != "" || c.Debug.TraceRatio == Default(c.Role).Debug.TraceRatio,
			"is not used without trace-endpoint"},
		{"lease-critical-window default_kv_lease_ttl enable_ha", !c.HA.Enabled || c.Lease.CriticalWindow < c.Lease.TTL, fmt.Sprintf(
			"is not shorter than default_kv_lease_ttl (%s), so every renewal is critical and is journaled after lease-critical-delay",
			formatDuration(c.Lease.TTL))},
	}
}

func securityRules(c *Config) []rule {
	s := c.Security
	return []rule{
		{"tls-cert tls-key", (s.Cert == "") == (s.Key == ""), "must be given together with tls-key"},
		{"tls-ca tls-cert", s.CA == "" || s.TLS(), "is of no use without tls-cert and tls-key; give these, too"},
		{"roles tls-ca tls-cert", !s.Roles || s.CA != "", "needs tls-ca, with tls-cert and tls-key: without TLS nobody can show who they are"},
		{"roles-client-regex roles", !s.ClientRegex || s.Roles, "is of no use without roles, where everybody may"},
		{"roles-tokens roles", s.Tokens == "" || s.Roles, "is of no use without roles"},
		{"etcd-cert etcd-key", (s.EtcdCert == "") == (s.EtcdKey == ""), "must be given together with etcd-key"},
		{"etcd-user etcd-password-file", (s.EtcdUser == "") == (s.EtcdPasswordFile == ""), "must be given together with etcd-password-file"},
		{"etcd-listen tls-cert tls-ca etcd_endpoints enable_ha", !c.HA.Embedded() || loopback(hostOf(c.HA.EtcdListen)) || unspecified(hostOf(c.HA.EtcdListen)) || s.TLS() && s.CA != "",
			"must be on loopback, such as 127.0.0.1:2379, or tls-cert, tls-key and tls-ca must be given: " +
				"whoever reaches this etcd without a certificate can overwrite the journal (masterctl certs init makes certificates for a trial)"},
	}
}

// portRules returns rules that two listeners of a node have different ports. If they had not,
// it would look as if another program had the port.
func portRules(c *Config) (rules []rule) {
	type listener struct{ setting, address string }
	listeners := []listener{{"rpc_port", c.Listen.RPC()}, {"metrics_port", c.Listen.HTTP()}}
	if c.HA.Witness { // a witness has no gRPC
		listeners = listeners[1:]
	}
	if c.Listen.Metadata {
		listeners = append(listeners, listener{"http_metadata_server_port", c.Listen.HTTPMetadata()})
	}
	for _, l := range c.Mooncake.Listen {
		listeners = append(listeners, listener{"mooncake-listen", l.Address})
	}
	if c.HA.Embedded() {
		listeners = append(listeners, listener{"etcd-listen", c.HA.EtcdListen})
	}
	if c.HA.Members() {
		listeners = append(listeners, listener{"etcd-peer-listen", c.PeerAddress()})
	}
	for i, l := range listeners {
		for _, other := range listeners[:i] {
			names := l.setting + " rpc_port rpc_address metrics_port metrics_host mooncake-listen enable_http_metadata_server " +
				"http_metadata_server_host http_metadata_server_port etcd-listen etcd-peer-listen etcd_endpoints enable_ha"
			text := fmt.Sprintf("must differ from %s, which listens on %s", other.setting, other.address)
			rules = append(rules, rule{names, !overlap(l.address, other.address), text})
		}
	}
	return rules
}
