package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	deploymentsPath = "/apis/apps/v1/namespaces/shop/deployments"
	// deployment is an applied configuration, with %s for its name and %d for its replicas.
	deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"%s","labels":{"app":"web"}},"spec":{"replicas":%d,` +
		`"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[` +
		`{"name":"web","image":"web:1","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],` +
		`"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"memory":"128Mi"}},` +
		`"readinessProbe":{"httpGet":{"path":"/ready","port":8080}},"volumeMounts":[{"name":"config","mountPath":"/etc/web"}]},` +
		`{"name":"proxy","image":"proxy:1"}],"volumes":[{"name":"config","configMap":{"name":"web"}}]}}}}`
)

// deployments is the kind Deployment without its defaults and validation.
func deployments() *Kind {
	k := Builtin[appsv1.Deployment](appsv1.SchemeGroupVersion.WithKind("Deployment"), "deployments", appsv1.AddToScheme)
	k.Status, k.Generation = true, true
	return k
}

func TestApplyMergesListsOfBuiltinKinds(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c *Config) { c.Kinds = append(c.Kinds, deployments()) })
	apply := func(manager, containers string) []corev1.Container {
		t.Helper()
		text := mustSend(t, s, http.MethodPatch, deploymentsPath+"/web?fieldManager="+manager,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"template":{"spec":{"containers":[`+containers+`]}}}}`,
			"Content-Type", "application/apply-patch+yaml")
		var d appsv1.Deployment
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		return d.Spec.Template.Spec.Containers
	}
	apply("m1", `{"name":"web","image":"web:1","ports":[{"containerPort":80}]},{"name":"old","image":"old:1"}`)
	apply("m2", `{"name":"web","ports":[{"containerPort":80,"protocol":"UDP"},{"containerPort":81}]},{"name":"proxy","image":"proxy:1"}`)
	containers := apply("m1", `{"name":"web","image":"web:2","ports":[{"containerPort":80}]}`)
	var got []string
	for _, c := range containers {
		text := c.Name + " " + c.Image
		for _, p := range c.Ports {
			text += fmt.Sprintf(" %d/%s", p.ContainerPort, p.Protocol)
		}
		got = append(got, text)
	}
	if got, want := strings.Join(got, ", "), "web web:2 80/ 80/UDP 81/, proxy proxy:1"; got != want {
		t.Errorf("containers: %s\nwant %s", got, want)
	}
}
