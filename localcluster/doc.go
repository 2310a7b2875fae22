// Package localcluster starts a real Kubernetes cluster on this machine, for tests and experiments. It needs only Go:
// the cluster's binary is built from source once, and cached.
//
//	cluster, err := localcluster.Start(ctx, localcluster.Config{})
//	if err != nil {
//		return err
//	}
//	defer cluster.Stop()
//	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
//
// A cluster is a separate process with child processes: tests can kill and restart its API server, and its Kubernetes
// version is independent of the client libraries of the program. It ends at the latest when this process ends, even if
// this process is killed, and leaves no files or processes behind.
//
// The cluster is the module github.com/evenkeel-go/evenkeel/localcluster. This package builds it and communicates with
// it, but does not import it. It runs on Linux and macOS.
//
// # First build
//
// The first Start on a machine, and the first one after each change of the cluster's version, builds for minutes, while
// "go test" stops a package's tests after ten minutes. On slow machines and with empty caches, as in CI, build before
// the tests:
//
//	go run github.com/evenkeel-go/evenkeel/localcluster/cmd/localcluster version
//
// # Existing clusters
//
// With [EnvExisting] or [Config.Kubeconfig], Start uses an existing cluster, so that the same tests can run against
// another Kubernetes version or distribution.
package localcluster
