package subscription_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/informer/subscription"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type configMap = *corev1.ConfigMap

func newServer() *kindserver.Server[configMap] {
	return kindserver.New[configMap](apiserver.ConfigMaps(), true)
}

// newSubscribed returns a server with objects, and a subscription to them that does not run yet.
func newSubscribed(t *testing.T, objects ...configMap) (
	*kindserver.Server[configMap], *subscription.Subscription[configMap],
) {
	t.Helper()
	server := newServer()
	for _, obj := range objects {
		server.Put(obj)
	}
	return server, newSubscription(t, config[configMap]{Retriever: server})
}

func key(name string) kube.Key { return kube.Key{Namespace: "ns", Name: name} }

// object returns a ConfigMap.
func object(name, value string) configMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"value": value}}
}

// logger writes to the test's output.
func logger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// config has a Retriever for an informer of the subscription's own, or an Informer.
type config[T kube.Object] struct {
	Name      string
	Retriever informer.Retriever[T]
	Informer  *informer.Informer[T]
	Predicate informer.Predicate
}

func newSubscription[T kube.Object](t *testing.T, config config[T]) *subscription.Subscription[T] {
	t.Helper()
	if config.Informer == nil {
		objects, err := informer.New(informer.Config[T]{Name: config.Name, Retriever: config.Retriever, Logger: logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		config.Informer = objects
	}
	s, err := subscription.New(subscription.Config[T]{Name: config.Name, Informer: config.Informer, Predicate: config.Predicate})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// uid returns the name uid-N for the uid of the Nth object that a server had with this name.
func uid(obj metav1.Object) string {
	server := newServer()
	for n := 1; n < 20; n++ {
		if server.Put(object(obj.GetName(), "1")).UID == obj.GetUID() {
			return fmt.Sprint("uid-", n)
		}
		server.Delete(key(obj.GetName()))
	}
	return "unknown"
}

// words returns an event as text, as in "Applied a=1 uid-1".
func words(e subscription.Event[configMap]) string {
	text := "Applied"
	switch {
	case e.Synced:
		text = "Synced"
	case e.Deleted:
		text = "Deleted"
	}
	if e.Object != nil {
		text += fmt.Sprintf(" %s=%s %s", e.Object.Name, e.Object.Data["value"], uid(e.Object))
	}
	return text
}

// received returns the values that can be received now.
func received[V any](out <-chan V, words func(V) string) []string {
	var all []string
	for {
		synctest.Wait()
		select {
		case v, open := <-out:
			if !open {
				return append(all, "end")
			}
			all = append(all, words(v))
		default:
			return all
		}
	}
}

// expect fails the test unless exactly these events can be received now.
func expect(t *testing.T, out <-chan subscription.Event[configMap], want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, received(out, words)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func errDown() error { return errors.New("the server is down") }

// textLogger writes to a builder.
func textLogger(to *strings.Builder) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
