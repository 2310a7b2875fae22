package operator

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
)

// writeAsOtherClient makes another client write to the object of a request first, if it exists. Its changes must stay:
// see checkForeignWrites.
func (f *faults) writeAsOtherClient(r *http.Request) {
	w := f.world
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: nameOf(r)}
	var obj kube.Object
	resource, _ := operationOf(r)
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
		w.Errorf("no foreign write defined for resource %s", resource)
		return
	}
	var err error
	if strings.HasSuffix(r.URL.Path, "/status") {
		resource += "/status"
		for {
			err = w.putConditionFirst(otherClient)  //nolint:contextcheck // not a request of the operator
			if !errors.Is(err, client.ErrChanged) { // changed by the WebApp's user
				break
			}
		}
	} else {
		_, _, err = client.EditMetadata(r.Context(), w.client, obj, func(_, annotations map[string]string) { annotations[otherClient] = "was here" })
	}
	switch {
	case errors.Is(err, client.ErrGone):
	case err != nil:
		w.Errorf("write first: %v", err)
	default:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.foreignWrite = resource
	}
}

// otherClient is the name that the other client uses.
const otherClient = "example.com/other-client"

// putConditionFirst moves the other conditions, so that patches by index must detect it.
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

// checkForeignWrites checks that the other client's changes still exist.
func (w *world) checkForeignWrites(app *v1.WebApp, children map[string]kube.Object) {
	w.Helper()
	if w.faults == nil {
		return
	}
	w.faults.mu.Lock()
	resource := w.faults.foreignWrite
	w.faults.mu.Unlock()
	exists := true
	switch resource {
	case "webapps/status":
		exists = apimeta.IsStatusConditionTrue(app.Status.Conditions, otherClient)
	case "webapps":
		exists = app.Annotations[otherClient] != ""
	case "":
	default:
		exists = false
		for child, obj := range children {
			kind, _, _ := strings.Cut(strings.ToLower(child), " ")
			exists = exists || kind+"s" == resource && obj.GetAnnotations()[otherClient] != ""
		}
	}
	if !exists {
		w.Errorf("the other client's change of %s is lost", resource)
	}
}
