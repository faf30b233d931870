package config

import (
	"net"
	"strings"
)

// Members reports whether the embedded etcd is one of several members, one in each node.
func (h HA) Members() bool { return h.Embedded() && h.asksForMembers() }

func (h HA) asksForMembers() bool { return h.ClusterInit || len(h.Join) > 0 }

// peerPort is where members of etcd reach each other unless etcd-peer-listen says otherwise.
const peerPort = 2380

// PeerAddress returns the host:port at which the other members reach the etcd of this node.
// Resolve does not change it, so the node listens on the address that the rules checked.
func (c Config) PeerAddress() string {
	if c.HA.EtcdPeerListen != "" {
		return c.HA.EtcdPeerListen
	}
	return hostPort(c.advertiseHost(c.Listen.RPCAddress), peerPort)
}

// memberRules returns the rules for an etcd with a member in each node.
func memberRules(c *Config) []rule {
	h, s, peers := c.HA, c.Security, hostOf(c.PeerAddress())
	members := h.Members()
	return []rule{
		{"cluster-init", c.Role != Standby || !h.ClusterInit, "is not for a standby, which never begins a cluster; give it join, or cluster-init to a master"},
		{"cluster-init etcd_endpoints enable_ha", members || !h.ClusterInit, "is about the embedded etcd, which this node does not run: leave it out, or etcd_endpoints"},
		{"join etcd_endpoints enable_ha", members || len(h.Join) == 0, "is about the embedded etcd, which this node does not run: leave it out, or etcd_endpoints"},
		{"witness join etcd_endpoints enable_ha", !h.Witness || members && len(h.Join) > 0 && c.Role == Standby,
			"is for a standby with join, which becomes a member of the others' etcd and holds no metadata"},
		{"witness enable_http_metadata_server mooncake-listen kv_events_bind_endpoint",
			!h.Witness || !c.Listen.Metadata && len(c.Mooncake.Listen) == 0 && c.KVEvents.Endpoint == "",
			"serves nobody: leave out enable_http_metadata_server, mooncake-listen and kv_events_bind_endpoint"},
		{"etcd-peer-listen cluster-init join", h.asksForMembers() || h.EtcdPeerListen == "", "is of no use without cluster-init or join"},
		{"join-token-file cluster-init join", h.asksForMembers() || h.JoinTokenFile == "", "is of no use without cluster-init or join"},
		{"etcd-peer-listen advertise-address rpc_address cluster-init join", !members || peers == "localhost" || net.ParseIP(peers) != nil && !unspecified(peers),
			"must have one IP address that the other members can dial, such as 10.0.0.1:2380; without it advertise-address must have one"},
		{"etcd-peer-listen advertise-address rpc_address cluster-init join tls-cert tls-ca join-token-file",
			!members || loopback(peers) || s.TLS() && s.CA != "" && h.JoinTokenFile != "",
			"must be on loopback, or tls-cert, tls-key, tls-ca and join-token-file must be given: " +
				"whoever reaches this etcd without them could become a member (masterctl certs init makes certificates for a trial)"},
		{"node-id cluster-init join", !members || !strings.ContainsAny(c.Node.ID, ",="), "must be without ',' and '=', as it is the name of a member of etcd"},
	}
}

// Loopback reports whether only this machine can dial a host:port.
func Loopback(address string) bool { return loopback(hostOf(address)) }
