package operator

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/status"
)

// meddle has another hand write to what a request is about to write to, if it is there. What it writes
// has to stay: see meddled.
func (f *faults) meddle(r *http.Request) {
	w := f.world
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: nameOf(r)}
	var obj kube.Object
	resource, _ := whatIsAsked(r)
	switch resource {
	case "webapps":
		obj = &v1.WebApp{ObjectMeta: meta}
	case "deployments":
		obj = &appsv1.Deployment{ObjectMeta: meta}
	case "services":
		obj = &corev1.Service{ObjectMeta: meta}
	case "configmaps":
		obj = &corev1.ConfigMap{ObjectMeta: meta}
	default:
		w.Errorf("who would write to %s?", resource)
		return
	}
	var err error
	if strings.HasSuffix(r.URL.Path, "/status") {
		resource += "/status"
		for {
			err = w.putConditionFirst(meddler)      //nolint:contextcheck // it is not the operator that asks
			if !errors.Is(err, client.ErrChanged) { // by the WebApp's user
				break
			}
		}
	} else {
		_, _, err = client.SetAnnotations(r.Context(), w.client, obj, map[string]string{meddler: "was here"})
	}
	switch {
	case errors.Is(err, client.ErrGone):
	case err != nil:
		w.Errorf("write first: %v", err)
	default:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.meddledWith = resource
	}
}

// meddler is the name of what another hand writes.
const meddler = "example.com/meddler"

// putConditionFirst moves the other conditions: who patches them by their places has to notice.
func (w *world) putConditionFirst(conditionType string) error {
	app, err := w.get("shop")
	if err != nil {
		return err
	}
	after := app.DeepCopy()
	after.Status.Conditions = slices.Insert(after.Status.Conditions, 0, metav1.Condition{
		Type: conditionType, Status: metav1.ConditionTrue, Reason: "Meddled", LastTransitionTime: metav1.Now(),
	})
	_, err = client.Patch(w.Context(), w.client, app, client.MergeFrom(app, after).Locked(app), client.Subresource("status"))
	return err
}

// checkMeddled looks whether what another hand has written is still there.
func (w *world) checkMeddled(app *v1.WebApp, children map[string]kube.Object) {
	w.Helper()
	if w.faults == nil {
		return
	}
	w.faults.mu.Lock()
	resource := w.faults.meddledWith
	w.faults.mu.Unlock()
	there := true
	switch resource {
	case "webapps/status":
		there = status.IsTrue(app.Status.Conditions, meddler)
	case "webapps":
		there = app.Annotations[meddler] != ""
	case "":
	default:
		there = false
		for child, obj := range children {
			kind, _, _ := strings.Cut(strings.ToLower(child), " ")
			there = there || kind+"s" == resource && obj.GetAnnotations()[meddler] != ""
		}
	}
	if !there {
		w.Errorf("what another hand has written to %s is lost", resource)
	}
}
