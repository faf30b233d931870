package client

import (
	"context"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// A Server is a primary that introduced itself.
type Server struct {
	NodeID   string
	Term     uint64
	Version  string // of its program
	Revision uint32 // newest one of the contract that it knows
}

// ServiceReady returns who serves.
func (c *Client) ServiceReady(ctx context.Context) (Server, error) {
	req := &pb.ServiceReadyRequest{ContractRevision: pb.ContractRevision}
	resp, _, err := ask[pb.ServiceReadyResponse](ctx, c, opServiceReady, req, nil)
	return Server{resp.GetHeader().GetNodeId(), resp.GetHeader().GetTerm(), resp.GetServerVersion(), resp.GetContractRevision()}, err
}

// BatchQueryIP returns the addresses, without ports, at which each of 1 to
// 10,000 clients has mounted segments. Clients without any are left out.
func (c *Client) BatchQueryIP(ctx context.Context, clients []uuid.UUID) (map[uuid.UUID][]string, error) {
	req := &pb.BatchQueryIpRequest{ClientIds: make([]string, len(clients))}
	for i, id := range clients {
		req.ClientIds[i] = id.String()
	}
	resp, _, err := ask[pb.BatchQueryIpResponse](ctx, c, opBatchQueryIP, req, nil)
	if err != nil {
		return nil, err
	}
	found := make(map[uuid.UUID][]string, len(resp.GetClients()))
	for _, one := range resp.GetClients() {
		id, err := uuid.Parse(one.GetClientId())
		if err != nil {
			return nil, errs.Wrap(errs.Internal, opBatchQueryIP.name, err)
		}
		found[id] = one.GetIps()
	}
	return found, nil
}

// GetFsdir returns the directory of Disk replicas, empty if there are none.
func (c *Client) GetFsdir(ctx context.Context) (string, error) {
	resp, _, err := ask[pb.GetFsdirResponse](ctx, c, opGetFsdir, &pb.GetFsdirRequest{}, nil)
	return resp.GetFsdir(), err
}

// A StorageConfig says how Disk replicas are kept.
type StorageConfig struct {
	Fsdir              string // empty if there are none
	EnableDiskEviction bool   // clients may delete files when space runs out
	QuotaBytes         uint64 // 0 = no limit
}

// GetStorageConfig returns how Disk replicas are kept.
func (c *Client) GetStorageConfig(ctx context.Context) (StorageConfig, error) {
	resp, _, err := ask[pb.GetStorageConfigResponse](ctx, c, opGetStorageConfig, &pb.GetStorageConfigRequest{}, nil)
	return StorageConfig{resp.GetFsdir(), resp.GetEnableDiskEviction(), resp.GetQuotaBytes()}, err
}
