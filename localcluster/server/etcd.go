package main

import (
	"context"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// Sockets in the folder, which is each component's working directory. Only the folder's owner can connect to them,
// unlike to a port of 127.0.0.1.
const (
	etcdSocket = "etcd.sock"
	peerSocket = "etcd-peer.sock"
)

// startEtcd starts etcd in this process, and returns when it is ready.
func startEtcd(ctx context.Context) (*embed.Etcd, error) {
	config := embed.NewConfig()
	config.Name = contextName
	config.Dir = "etcd"
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Host: etcdSocket}}
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: peerSocket}}
	config.ListenClientHttpUrls = nil
	// etcd requires an advertised URL with host and port. It is never used: there is one member, and its client
	// connects to the socket.
	config.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	config.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	// Without fsync the data survives the death of the process, which tests need, but not a crash of the machine. In
	// exchange no write waits for the disk.
	config.UnsafeNoFsync = true
	// A single member needs no election timeout for other members.
	config.TickMs, config.ElectionMs = 20, 200
	// Two write-ahead log files are preallocated. 2 x 64 MB is a lot for a temporary folder, which may be in memory.
	wal.SegmentSizeBytes = 8 << 20
	config.QuotaBackendBytes = 8 << 30
	config.EnableGRPCGateway = false
	config.Logger, config.LogLevel, config.LogOutputs = "zap", "error", []string{"stderr"}

	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, fmt.Errorf("starting etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, fmt.Errorf("starting etcd: %w", err)
	case <-ctx.Done():
		return nil, fmt.Errorf("starting etcd: %w", ctx.Err())
	}
}
