package config

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// check turns what was given into fields, faults and warnings.
type check struct {
	given    map[string]given
	faults   Faults
	warnings []Warning
}

// settings writes the given values into the fields.
func (c *check) settings(known []setting) {
	for _, s := range known {
		g, ok := c.given[s.name]
		switch {
		case !ok:
		case !utf8.ValidString(g.text): // such a name in an answer would break every answer
			c.faults = append(c.faults, &Fault{s.name, g.text, g.origin, "must be text in UTF-8"})
		case !s.value.set(g.text):
			c.faults = append(c.faults, &Fault{s.name, g.text, g.origin, "must be " + s.value.allowed()})
		}
	}
}

// unused warns of names that are accepted only, and refuses their values that
// ask for something.
func (c *check) unused(ignored []unused) {
	for _, u := range ignored {
		g, ok := c.given[u.name]
		switch {
		case !ok:
		case u.accepts(g.text):
			c.warnings = append(c.warnings, Warning{u.name, g.text, g.origin, "accepted and not used: " + u.reason})
		default:
			c.faults = append(c.faults, &Fault{u.name, g.text, g.origin, "must be " + u.allowed() + " or left out: " + u.reason})
		}
	}
}

// rules judges the fields together, once each stands for itself.
func (c *check) rules(cfg *Config) {
	faulty := map[string]bool{}
	for _, f := range c.faults {
		faulty[f.Name] = true
	}
	values := map[string]string{}
	for _, s := range settings(cfg) {
		values[s.name] = s.value.String()
	}
	for _, r := range rules(cfg) {
		// A faulty setting still has its default; a rule would judge that.
		if r.holds || slices.ContainsFunc(r.names, func(n string) bool { return faulty[n] }) {
			continue
		}
		name, origin := r.names[0], "default"
		if g, ok := c.given[name]; ok {
			origin = g.origin
		}
		if r.advice {
			c.warnings = append(c.warnings, Warning{name, values[name], origin, r.text})
		} else {
			c.faults = append(c.faults, &Fault{name, values[name], origin, r.text})
		}
	}
}

// rule is what must hold between settings.
type rule struct {
	// names are the settings involved; a broken rule is reported under the first.
	names []string
	holds bool
	// text says what must hold, or for an advice what follows from its breach.
	text string
	// advice makes a broken rule a warning.
	advice bool
}

// rules is the table of rules over c.
func rules(c *Config) []rule {
	return slices.Concat(roleRules(c), addressRules(c), timeRules(c), sizeRules(c))
}

func roleRules(c *Config) []rule {
	standby := c.Role == Standby
	return []rule{
		{
			names: []string{"enable_ha"},
			holds: !standby || c.HA.Enabled,
			text:  "must be true for a standby: it follows a primary through etcd",
		},
		{
			names: []string{"etcd_endpoints", "enable_ha"},
			holds: !standby || !c.HA.Enabled || len(c.HA.EtcdEndpoints) > 0,
			text:  "must be given for a standby: name the etcd that its primary uses",
		},
		{
			names: []string{"start-empty"},
			holds: !standby || !c.HA.StartEmpty,
			text:  "is not for a standby, which never starts empty; give it to a master",
		},
		{
			names:  []string{"etcd_endpoints", "enable_ha"},
			holds:  c.HA.Enabled || len(c.HA.EtcdEndpoints) == 0,
			text:   "is not used, because enable_ha is false: this is a lone primary without a journal",
			advice: true,
		},
		{
			names:  []string{"promotion-cleanup", "eviction-policy"},
			holds:  c.HA.PromotionCleanup != CleanupExpired || c.Eviction.Policy != EvictWatermark,
			text:   "each takeover will drop every object whose lease has run out, which under eviction-policy=watermark is most of a healthy cache; auto keeps it",
			advice: true,
		},
	}
}

func addressRules(c *Config) []rule {
	return append(portRules(c), []rule{
		{
			names: []string{"etcd-listen", "etcd_endpoints", "enable_ha"},
			holds: !c.HA.Embedded() || !unspecified(hostOf(c.HA.EtcdListen)),
			text:  "must name one address that standbys can dial, such as 10.0.0.1:2379, or 127.0.0.1:0 if there are none; all interfaces is no address to dial",
		},
		{
			names: []string{"advertise-address", "rpc_address", "etcd-listen", "etcd_endpoints", "enable_ha"},
			holds: !c.HA.Enabled || c.HA.Embedded() && loopback(hostOf(c.HA.EtcdListen)) || c.Node.AdvertiseAddress != "" || !unspecified(c.Listen.RPCAddress),
			text: "the node listens on all interfaces, so it will advertise 127.0.0.1, which only this machine can dial; " +
				"give the address that peers and clients should use",
			advice: true,
		},
	}...)
}

// portRules keep a node from taking its own ports, which would look as if
// another program had them.
func portRules(c *Config) []rule {
	var rules []rule
	names := []string{"rpc_port", "rpc_address", "metrics_port", "metrics_host", "mooncake-listen", "etcd-listen", "etcd_endpoints", "enable_ha"}
	for _, setting := range []string{"metrics_port", "mooncake-listen", "etcd-listen"} {
		other := c.clash(setting)
		rules = append(rules, rule{
			names: append([]string{setting}, names...),
			holds: other == listens{},
			text:  fmt.Sprintf("must differ from %s, which listens on %s", other.setting, other.address),
		})
	}
	return rules
}

// listens is an address that the node listens on, with its setting.
type listens struct{ setting, address string }

// listens returns all addresses of the node, in the order of their opening.
func (c *Config) listens() []listens {
	list := []listens{{"rpc_port", c.Listen.RPC()}, {"metrics_port", c.Listen.HTTP()}}
	for _, l := range c.Mooncake.Listen {
		list = append(list, listens{"mooncake-listen", l.Address})
	}
	if c.HA.Embedded() {
		list = append(list, listens{"etcd-listen", c.HA.EtcdListen})
	}
	return list
}

// clash returns what listens already where a setting wants to; zero for nothing.
func (c *Config) clash(setting string) listens {
	list := c.listens()
	for i, l := range list {
		if l.setting != setting {
			continue
		}
		for _, before := range list[:i] {
			if overlap(before.address, l.address) {
				return before
			}
		}
	}
	return listens{}
}

func timeRules(c *Config) []rule {
	return []rule{
		{
			names: []string{"events-ttl", "session-ttl"},
			holds: c.Journal.EventsTTL > c.HA.SessionTTL,
			text:  fmt.Sprintf("must be longer than session-ttl (%s): a new primary reads what the old one wrote", formatDuration(c.HA.SessionTTL)),
		},
		{
			names: []string{"lease-critical-delay", "lease-critical-window"},
			holds: c.Lease.CriticalDelay < c.Lease.CriticalWindow,
			text: fmt.Sprintf("must be shorter than lease-critical-window (%s): the renewal must be journaled before the lease runs out",
				formatDuration(c.Lease.CriticalWindow)),
		},
		{
			names: []string{"lease-critical-window", "default_kv_lease_ttl"},
			holds: c.Lease.CriticalWindow < c.Lease.TTL,
			text: fmt.Sprintf("is not shorter than default_kv_lease_ttl (%s), so every renewal is critical and is journaled after lease-critical-delay",
				formatDuration(c.Lease.TTL)),
			advice: true,
		},
		{
			names: []string{"default_kv_soft_pin_ttl", "max_kv_soft_pin_ttl"},
			holds: c.Lease.SoftPinTTL <= c.Lease.MaxSoftPinTTL,
			text:  fmt.Sprintf("must be at most max_kv_soft_pin_ttl (%s)", formatDuration(c.Lease.MaxSoftPinTTL)),
		},
		{
			names: []string{"put_start_release_timeout_sec", "put_start_discard_timeout_sec"},
			holds: c.Put.ReleaseTimeout > c.Put.DiscardTimeout,
			text: fmt.Sprintf("must be longer than put_start_discard_timeout_sec (%s): a writer may still write to memory of a discarded put",
				formatDuration(c.Put.DiscardTimeout)),
		},
	}
}

func sizeRules(c *Config) []rule {
	return []rule{
		{
			names: []string{"journal-max-bytes", "etcd-quota-bytes", "etcd_endpoints", "enable_ha"},
			holds: !c.HA.Embedded() || c.Journal.MaxBytes < c.HA.EtcdQuotaBytes/2,
			text:  fmt.Sprintf("must be below half of etcd-quota-bytes (%s): the embedded etcd stores the journal, and what was deleted of it until the next cut", formatSize(c.HA.EtcdQuotaBytes)),
		},
	}
}
