// Package localcluster starts a real Kubernetes cluster on this machine, for
// tests and for trying things out. Nothing has to be installed but Go: the
// cluster's binary is built from source, once, and cached.
//
//	cluster, err := localcluster.Start(ctx, localcluster.Config{})
//	if err != nil {
//		return err
//	}
//	defer cluster.Stop()
//	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
//
// A cluster is a process of its own (and children of that), never a part of this
// one: tests can kill its API server and start it again, and its Kubernetes
// version is independent of the client libraries here. It ends with this process
// at the latest, even when this process is killed, and leaves nothing behind.
//
// The cluster itself is the module github.com/evenkeel-go/evenkeel/localcluster,
// which this package builds and talks to but does not import. It runs on Linux
// and macOS.
//
// # The first build
//
// The first Start on a machine, and the first after each change of the cluster's
// version, builds for minutes; "go test" ends a package's tests after ten. Where
// machines are slow or caches empty, as in CI, build before the tests:
//
//	go run github.com/evenkeel-go/evenkeel/cmd/localcluster version
//
// # An existing cluster instead
//
// With [EnvExisting] or [Config.Kubeconfig], Start uses a cluster that already
// runs, so the same tests can be pointed at another Kubernetes version or
// distribution.
package localcluster
