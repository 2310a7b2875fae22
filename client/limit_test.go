package client_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A Cluster that is limited to namespaces limits what reads, unless a selection names others, and never what deletes.
func TestReadsFollowNamespacesOfCluster(t *testing.T) {
	t.Parallel()
	server := apitest.New(apiserver.ConfigMaps(), apitest.Nodes())
	cluster, err := kube.Connect(server.Config("test"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"a", "b", "c"} {
		if _, err := client.Create(t.Context(), c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Create(t.Context(), c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); err != nil {
		t.Fatal(err)
	}
	type maps = *corev1.ConfigMap
	for _, test := range []struct {
		limit, selected []string
		want            string // the namespaces of the results; "error" for calls that make one list
		oneList         string
	}{
		{nil, nil, "abc", "abc"},
		{[]string{"a"}, nil, "a", "a"},
		{[]string{"b", "a"}, nil, "ba", "error"},
		{[]string{"a", "b"}, []string{"c"}, "c", "c"},
		{[]string{"a"}, []string{kube.AllNamespaces}, "abc", "abc"},
	} {
		t.Run(fmt.Sprint(test.limit, test.selected), func(t *testing.T) {
			if err := cluster.SetNamespaces(test.limit...); err != nil {
				t.Fatal(err)
			}
			selection := kube.Selection{Namespaces: test.selected}
			text := func(objects []maps, err error) string {
				if err != nil {
					if !strings.Contains(err.Error(), "the Cluster is limited to 2 namespaces") {
						t.Error(err)
					}
					return "error"
				}
				var namespaces string
				for _, obj := range objects {
					namespaces += obj.Namespace
				}
				return namespaces
			}
			all, err := client.All[maps](t.Context(), c, selection)
			if got := text(all, err); got != test.want {
				t.Errorf("All returned %q, want %q", got, test.want)
			}
			var listed []maps
			for obj, err := range client.List[maps](t.Context(), c, selection) {
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, obj)
			}
			if got := text(listed, nil); got != test.want {
				t.Errorf("List returned %q, want %q", got, test.want)
			}
			keys, err := client.Keys[maps](t.Context(), c, selection)
			if len(keys) != len(test.want) || err != nil {
				t.Errorf("Keys returned %v, %v", keys, err)
			}
			page, err := client.ListPage[maps](t.Context(), c, selection, "")
			if got := text(page.Objects, err); got != test.oneList {
				t.Errorf("ListPage returned %q, want %q", got, test.oneList)
			}
			found, err := client.WaitForObjects[maps](t.Context(), c, selection, max(1, len(test.oneList)%5), nil)
			if got := text(found, err); got != test.oneList {
				t.Errorf("WaitForObjects returned %q, want %q", got, test.oneList)
			}
			events, err := client.Watch[maps](t.Context(), c, selection)
			if err == nil {
				events.Stop()
			}
			if got := text(nil, err) == "error"; got != (test.oneList == "error") {
				t.Errorf("Watch returned %v", err)
			}
			nodes, err := client.All[*corev1.Node](t.Context(), c, kube.Selection{})
			if len(nodes) != 1 || err != nil {
				t.Errorf("the cluster-scoped objects are %v, %v", nodes, err)
			}
			if _, err := client.ListPage[*corev1.Node](t.Context(), c, kube.Selection{}, ""); err != nil {
				t.Error(err)
			}
			if len(test.selected) > 0 {
				return
			}
			selection.FieldSelector = "metadata.name!="
			if err := client.DeleteAllOf[maps](t.Context(), c, selection); err == nil || !strings.Contains(err.Error(), "needs Namespaces") {
				t.Errorf("DeleteAllOf without namespaces: %v", err)
			}
			_, err = client.DeleteMatching(t.Context(), c, selection, func(maps) (bool, error) { return true, nil })
			if err == nil || !strings.Contains(err.Error(), "needs Namespaces") {
				t.Errorf("DeleteMatching without namespaces: %v", err)
			}
		})
	}
	if keys := server.Keys("configmaps"); !slices.Equal(keys, []string{"a/m", "b/m", "c/m"}) {
		t.Errorf("the objects are %q", keys)
	}
}
