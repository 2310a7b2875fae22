package informer_test

import (
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Nothing can be decoded as an interface. The error must name the type parameter, and must not mention anything that
// the user did not set.
func TestInterfaceAsObjectTypeRejected(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(apitest.New().Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	retriever := informer.Retrieve[kube.Object](cluster)
	_, informerErr := informer.New(informer.Config[kube.Object]{Name: "objects", Retriever: retriever})
	_, combinedErr := informer.New(informer.Config[kube.Object]{Name: "objects", Retriever: informer.Combine(retriever)})
	_, controllerErr := controller.New(controller.Config[kube.Object]{Name: "objects", Retriever: retriever, Handler: nil})
	for name, err := range map[string]error{"informer": informerErr, "combined": combinedErr, "controller": controllerErr} {
		if err == nil || !strings.Contains(err.Error(), "kube.Object") || !strings.Contains(err.Error(), "must be a pointer to a struct") {
			t.Errorf("%s: the error does not name the type parameter: %v", name, err)
		} else if strings.Contains(err.Error(), "Cut") {
			t.Errorf("%s: the error names Cut, which nobody has set: %v", name, err)
		}
	}
}
