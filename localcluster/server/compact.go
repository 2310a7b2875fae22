package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// compactCommand is the hidden command that compacts etcd. It runs in the cluster's folder, because the path of etcd's
// socket must be short.
const compactCommand = "compact"

// compactTimeout is how long a compaction may take. It takes milliseconds, unless etcd is stuck.
const compactTimeout = 30 * time.Second

// compact removes all versions before the current one from etcd.
func (s *supervisor) compact(ctx context.Context) error {
	if s.processes[componentAPIServer] == nil {
		return errors.New("the API server, and with it etcd, is not running")
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this binary to compact etcd: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, compactCommand)
	cmd.Dir = s.folder.path
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compacting etcd: %w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

// runCompact compacts the etcd whose socket is in the working directory.
func runCompact() int {
	ctx, cancel := context.WithTimeout(context.Background(), compactTimeout)
	defer cancel()
	if err := compactEtcd(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	return 0
}

// compactEtcd compacts as the API server does, which also informs the caches of API servers.
func compactEtcd(ctx context.Context) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + etcdSocket}, Context: ctx})
	if err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}
	defer func() { _ = client.Close() }()
	// The first call returns the current revision and the number of earlier compactions, which the second call needs.
	count, revision, _, err := etcd3.Compact(ctx, client, 0, 0)
	if err == nil {
		_, _, _, err = etcd3.Compact(ctx, client, count, revision)
	}
	return err
}
