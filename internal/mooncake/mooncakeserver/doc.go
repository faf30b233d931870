// Package mooncakeserver is the front end for Mooncake's own clients: it answers
// their RPC with what package service does.
//
// It translates and does nothing else, like package rpc for gRPC. A connection
// is served while this node is the primary and closed when it is not, as clients
// look for the primary again when their connections break; or its requests are
// relayed to the primary (see Relay). A result of a call, errors included,
// always travels inside the answer.
package mooncakeserver
