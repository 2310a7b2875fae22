package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/examples/internal/manifest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

func TestMain(m *testing.M) {
	exampletest.Main(m, localcluster.Config{Controllers: true, Nodes: 1}, nil)
}

// deployment is the manifest of a Deployment.
func deployment(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: c, image: none}]}
`, name, replicas)
}

func TestOutputComesFromCaches(t *testing.T) {
	cluster, err := kube.Connect(exampletest.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	apply := func(namespace, text string) {
		t.Helper()
		if err := manifest.Apply(t.Context(), cluster, namespace, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	home, other := exampletest.Namespace(t), exampletest.Namespace(t)
	apply(home, deployment("web", 2))
	apply(other, deployment("db", 1))
	out, stop := exampletest.Go(t, func(ctx context.Context, out io.Writer) error {
		return run(ctx, []string{"--namespace", home}, out)
	})
	matches := func(pattern string) {
		t.Helper()
		expression := regexp.MustCompile(pattern)
		out.Until(t, pattern, expression.MatchString)
	}
	out.Wait(t, home+"/web: pods: 2 of 2 on node-0; freezes: 0; because: ")
	apply(home, deployment("api", 1))
	out.Wait(t, home+"/api: pods: 1 of 3 on node-0; freezes: 0; because: ")
	pods, err := exampletest.Core(t).Pods(home).List(t.Context(), metav1.ListOptions{LabelSelector: "app=api"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("the Pods of api are %v: %v", pods, err)
	}
	first := pods.Items[0].Name
	// Another ReplicaSet: the events of the first one may have arrived before the Deployment.
	c, err := manifest.Client(cluster)
	if err == nil {
		err = client.DeleteAllOf[*appsv1.ReplicaSet](t.Context(), c, kube.Selection{Namespaces: []string{home}, LabelSelector: "app=api"})
	}
	if err != nil {
		t.Fatal(err)
	}
	matches(home + `/api: .*ReplicaSet: ` + home + `/api-\w+ added`)
	// The garbage collector deletes the dependents of the first one later. The program learns of it shortly after the
	// API server shows it, so its next counts may still include that Pod.
	exampletest.Eventually(t, "the first Pod of api is gone", func(ctx context.Context) (bool, string) {
		_, err := exampletest.Core(t).Pods(home).Get(ctx, first, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})

	// A namespace gets the label: its objects appear, and the others stay.
	exampletest.Eventually(t, "the Pod of db is on a node", func(ctx context.Context) (bool, string) {
		pods, err := exampletest.Core(t).Pods(other).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=node-0"})
		return err == nil && len(pods.Items) == 1, fmt.Sprint(err)
	})
	apply("", "{apiVersion: v1, kind: Namespace, metadata: {name: "+other+", labels: {example: cache}}}")
	matches(`watching 2 namespaces\nPod: [45] objects in .* MB\nDeployment: 3 objects in `)
	matches(other + `/db: pods: 1 of [45] on node-0; freezes: 0; because: .*(added|listed)`)

	// A kind is installed.
	if _, err := manifest.InstallCRD(t.Context(), cluster, read(t, "crd.yaml")); err != nil {
		t.Fatal(err)
	}
	exampletest.Eventually(t, "the kind is served", func(ctx context.Context) (bool, string) {
		err := manifest.Apply(ctx, cluster, home, read(t, "freeze.yaml")) // a CRD may be Established shortly before its kind is served
		return err == nil, fmt.Sprint(err)
	})
	matches(home + `/web: pods: 2 of [45] on node-0; freezes: 1; because: .*Freeze: ` + home + `/holidays`)

	// The label is removed.
	apply("", "{apiVersion: v1, kind: Namespace, metadata: {name: "+other+"}}")
	matches(`watching 1 namespaces\nPod: 3 objects in `)
	stop()
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
