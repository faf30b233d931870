package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/config"
)

// A host lends memory, an object is put there, and somebody reads it.
func Example() {
	address, stop := startNode()
	defer stop()

	c, err := client.New(client.Config{Addresses: []string{address}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	host := client.Segment{ID: uuid.New(), Name: "host-1", Base: 0x10000, Size: 1 << 20, Endpoint: "10.0.0.7:12345", Protocol: "rdma"}
	if err := c.MountSegment(ctx, host); err != nil {
		fmt.Println(err)
		return
	}

	// The writer: reserve, write the bytes at each replica, make them readable.
	put, err := c.PutStart(ctx, client.PutItem{Key: "block-1", Size: 4096}, client.PutConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("write %d bytes at %#x of %s\n", put.Size, put.Replicas[0].Address, put.Replicas[0].Endpoint)
	if err := c.PutEnd(ctx, put.Ref(), client.SelectAll); err != nil {
		fmt.Println(err)
		return
	}

	// A reader: what was read counts if the lease still holds afterwards.
	object, err := c.GetReplicaList(ctx, "block-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("read %d bytes at %#x of %s\n", object.Size, object.Replicas[0].Address, object.Replicas[0].Endpoint)
	fmt.Println("they are the object's:", object.Lease.Valid())

	_, err = c.GetReplicaList(ctx, "block-2")
	fmt.Println("another one is missing:", errors.Is(err, errs.ObjectNotFound))
	// Output:
	// write 4096 bytes at 0x10000 of 10.0.0.7:12345
	// read 4096 bytes at 0x10000 of 10.0.0.7:12345
	// they are the object's: true
	// another one is missing: true
}

// startNode runs a node in this process, alone and on a free port.
func startNode() (address string, stop func()) {
	cfg := config.Default(config.Primary)
	cfg.HA.Enabled = false
	cfg.Listen.RPCAddress, cfg.Listen.RPCPort, cfg.Listen.MetricsPort = "127.0.0.1", 0, 0
	a, err := app.New(cfg, "example", zerolog.Nop())
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return a.RPCAddress(), func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
	}
}
