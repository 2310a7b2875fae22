package main

import (
	"context"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// Sockets in the folder, which is the working directory of every component.
// Only the folder's owner can reach them, unlike a port of 127.0.0.1.
const (
	etcdSocket = "etcd.sock"
	peerSocket = "etcd-peer.sock"
)

// startEtcd starts etcd in this process and returns once it serves.
func startEtcd(ctx context.Context) (*embed.Etcd, error) {
	config := embed.NewConfig()
	config.Name = contextName
	config.Dir = "etcd"
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Host: etcdSocket}}
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: peerSocket}}
	config.ListenClientHttpUrls = nil
	// What is advertised must have a host and port. Nobody ever dials it: there is
	// one member, and its client is told the socket.
	config.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	config.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	// Without fsync the data survives the death of the process, which tests want,
	// and not that of the machine, for which nobody waits on every write.
	config.UnsafeNoFsync = true
	// A single member has nobody to wait for: elect it at once.
	config.TickMs, config.ElectionMs = 20, 200
	// Two write-ahead log files are allocated in advance; 64 MB each is a lot for a
	// temporary folder, which may be in memory.
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
