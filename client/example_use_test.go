package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// Nodes with --tls-cert and --tls-ca authenticate callers by a certificate, or by a token of
// their --roles-tokens.
func ExampleConfig_tls() {
	c, err := client.New(client.Config{
		Addresses: []string{"10.0.0.1:50051", "10.0.0.2:50051", "10.0.0.3:50051"},
		// Read at each new connection, so that new certificates and authorities need no restart.
		TLSFiles: client.TLSFiles{CA: "ca.crt", Cert: "client.crt", Key: "client.key"},
		// In place of a certificate: TLSFiles with CA alone, and TokenFile: "token".
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
}

// Calls survive a failover: the client repeats them with the request id of the first attempt,
// so a put happens once. The caller only has to give them enough time, and to query the object
// when an outcome is open.
func ExampleClient_failover() {
	c, err := client.New(client.Config{
		Addresses: []string{"10.0.0.1:50051", "10.0.0.2:50051", "10.0.0.3:50051"}, // several: one of them may be gone
		Timeout:   10 * time.Second,                                               // a failover takes about one
		Observer:  leaders{},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	put, err := c.PutStart(context.Background(), client.PutItem{Key: "block-1", Size: 4096}, client.PutConfig{})
	switch {
	case err == nil:
		fmt.Println("write the bytes to", put.Replicas)
	case errors.Is(err, errs.Unresolved): // it may have been reserved: the key can be put again in 30 s
	case errors.Is(err, errs.Unavailable), errors.Is(err, errs.NoAvailableHandle): // nothing was changed: try again
	default:
		log.Print(err)
	}
}

// leaders logs each new primary.
type leaders struct{}

func (leaders) Call(string, int, errs.Kind, time.Duration) {}
func (leaders) LeaderChanged(l client.Leader)              { log.Printf("%s leads, term %d", l.NodeID, l.Term) }
func (leaders) Remounted(segments int, err error) {
	log.Printf("mounted %d segments again: %v", segments, err)
}

// A router keeps which keys are in memory, from a position that it has saved.
func ExampleClient_KeyEvents() {
	c, err := client.New(client.Config{Addresses: []string{"10.0.0.1:50051", "10.0.0.2:50051"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	known := make(map[string]bool)
	var saved struct{ after client.KeyPosition } // where an earlier run has stopped; zero for all keys
	for update, err := range c.KeyEvents(context.Background(), saved.after) {
		if err != nil {
			log.Print(err) // waiting is no use
			return
		}
		if update.Resync {
			clear(known) // something may be missing; all keys follow
		}
		for _, event := range update.Events {
			if event.InMemory {
				known[event.Key] = true
			} else {
				delete(known, event.Key)
			}
		}
		saved.after = update.After // together with what is known
	}
}
