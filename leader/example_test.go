package leader_test

import (
	"os"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
)

// The manifest of a fence is printed, for kubectl apply -f -.
func ExampleFenceManifest() {
	// region fence
	lease := kube.Key{Namespace: "shop", Name: "shop-operator"}
	account := kube.Key{Namespace: "shop", Name: "shop-operator"} // of the operator's Pods, and of nothing else
	manifest, err := leader.FenceManifest(lease, account)
	// endregion
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(manifest[:79])
	// Output:
	// # The API server rejects the writes of shop/shop-operator unless the lease shop
}
