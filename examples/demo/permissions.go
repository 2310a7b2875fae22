package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/examples/internal/manifest"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/config"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/operator"
	"github.com/evenkeel-go/evenkeel/kube"
)

// grant brings the operator's permissions to the cluster: those of config/rbac.yaml, for
// the demo's namespace only, so that they go when it goes. The lease is left out: the
// demo's operator is alone in the namespace.
func (d *demo) grant(ctx context.Context) error {
	objects, err := manifest.Read(config.RBAC)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		switch obj.GetKind() {
		case "ClusterRole":
			obj.SetKind("Role")
		case "ClusterRoleBinding":
			obj.SetKind("RoleBinding")
			obj.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": obj.GetName()}
			obj.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": operator.Name, "namespace": d.namespace}}
		default:
			continue
		}
		obj.SetNamespace(d.namespace)
		if err := manifest.ApplyObject(ctx, d.cluster, obj); err != nil {
			return err
		}
	}
	return nil
}

// asOperator connects as the service account that grant has given permissions to: what
// the operator does in the demo, config/rbac.yaml allows. A name is all that is needed to
// act in its place.
func (d *demo) asOperator() (*kube.Cluster, error) {
	c := d.cluster.RESTConfig()
	c.Impersonate = rest.ImpersonationConfig{
		UserName: fmt.Sprintf("system:serviceaccount:%s:%s", d.namespace, operator.Name),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + d.namespace, "system:authenticated"},
	}
	return kube.Connect(c, v1alpha1.AddToScheme)
}
