package monitoring_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
)

// trouble is the run of the picture in docs/dashboards: two replicas have one kind of trouble after the other, with 10 min between
// them.
func trouble(w *world) {
	var slow, failing, stuck, fighting atomic.Bool
	handler := func(o *operator) controller.Handler[*unstructured.Unstructured] {
		return func(ctx context.Context, site *unstructured.Unstructured) error {
			replicas, _, _ := unstructured.NestedInt64(site.Object, "spec", "replicas")
			duration := time.Duration(100+37*(replicas%20)) * time.Millisecond
			if slow.Load() {
				duration *= 40
			}
			time.Sleep(duration)
			switch name := site.GetName(); {
			case stuck.Load() && name == "site-3":
				for stuck.Load() {
					time.Sleep(time.Second)
				}
			case failing.Load() && name == "site-0":
				<-ctx.Done()
				return ctx.Err()
			case failing.Load() && name == "site-1":
				panic("index out of range")
			case failing.Load() && name == "site-10":
				return controller.Terminal(errors.New("the spec is invalid"))
			case failing.Load() && name <= "site-14":
				return errors.New("the registry does not answer")
			case fighting.Load() && name == "contested" && replicas != 3:
				_, err := o.client.Resource(websites()).Namespace(site.GetNamespace()).Patch(ctx, name, types.MergePatchType,
					[]byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
				return err
			}
			return o.count(ctx, site)
		}
	}
	start := func(identity string) (stop func()) {
		o := w.operator(identity)
		o.controller.Handler, o.controller.Timeout = handler(o), time.Minute
		return o.start()
	}
	changed := func() { w.change(10*time.Minute, 4*time.Second) }
	for i := range 300 {
		w.put(fmt.Sprint("config-", i))
	}
	stop := start("website-operator-0")
	w.wait(scrapeInterval) // it leads
	start("website-operator-1")
	changed()
	w.mark("handlers are slow")
	slow.Store(true)
	changed()
	w.mark("")
	slow.Store(false)
	changed()
	w.mark("handlers fail")
	failing.Store(true)
	changed()
	changed()
	w.mark("")
	failing.Store(false)
	changed()
	w.mark("a handler is stuck")
	stuck.Store(true)
	changed()
	w.mark("")
	stuck.Store(false)
	changed()
	w.mark("two writers of a field")
	fighting.Store(true)
	for range 40 {
		w.site("contested", 5)
		w.change(scrapeInterval, 4*time.Second)
	}
	w.mark("")
	fighting.Store(false)
	changed()
	w.mark("API server is overloaded")
	w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.URL.Query().Has("watch") || req.URL.Path == "/api/v1/configmaps" {
			return apitest.Failure(apierrors.NewServiceUnavailable("the server is overloaded")), nil
		}
		time.Sleep(2 * time.Second)
		return do(), nil
	})
	w.Break("configmaps", false)
	changed()
	w.mark("")
	w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if query := req.URL.Query(); strings.HasSuffix(req.URL.Path, "/websites") && (!query.Has("watch") || query.Has("sendInitialEvents")) {
			time.Sleep(40 * time.Second)
		}
		return do(), nil
	})
	changed()
	w.mark("the leader stops")
	stop() // website-operator-1 leads, and lists the Websites
	changed()
	start("website-operator-0")
	changed()
}
