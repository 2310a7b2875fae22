package simulation_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/simulation"
)

// With the match condition of docs/webhooks.md, a validator that rejects an object does not keep its finalizer from being
// removed. It still reviews all other updates, and creations and deletions.
func TestMatchConditionLetsFinalizersBeRemoved(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("match condition `([^`]*)`").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/webhooks.md has no match condition")
	}
	condition := strings.Join(strings.Fields(string(found[1])), " ")
	for name, more := range map[string]string{
		"with":    `, matchConditions: [{name: living, expression: ` + strconv.Quote(condition) + `}]`,
		"without": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{YAML: webhook("Validating", "policy", "/review", more)}, func(t *testing.T, c *simulation.Cluster) {
				var reviewed []string
				rejects := false
				c.HandleWebhooks(reviewer{"/review": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					reviewed = append(reviewed, string(r.Operation))
					return &admissionv1.AdmissionResponse{
						Allowed: !rejects || r.Operation == admissionv1.Delete, Result: &metav1.Status{Message: "not valid"},
					}
				}})
				clients, err := kubernetes.NewForConfig(c.RESTConfig("user"))
				if err != nil {
					t.Fatal(err)
				}
				configMaps := clients.CoreV1().ConfigMaps("default")
				held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
				if _, err := configMaps.Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				rejects = true
				patch := func(text string) error {
					_, err := configMaps.Patch(t.Context(), "held", types.MergePatchType, []byte(text), metav1.PatchOptions{})
					return err
				}
				if err := patch(`{"data":{"a":"b"}}`); err == nil || !strings.Contains(err.Error(), "not valid") {
					t.Errorf("an update before the deletion: %v, want a rejection", err)
				}
				if err := configMaps.Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				err = patch(`{"metadata":{"finalizers":null}}`)
				_, getErr := configMaps.Get(t.Context(), "held", metav1.GetOptions{})
				want := "CREATE UPDATE DELETE"
				if name == "without" {
					want += " UPDATE"
				}
				if removed := err == nil && apierrors.IsNotFound(getErr); removed != (name == "with") {
					t.Errorf("removing the finalizer: %v; the object: %v", err, getErr)
				}
				if got := strings.Join(reviewed, " "); got != want {
					t.Errorf("reviewed %q, want %q", got, want)
				}
			})
		})
	}
}
